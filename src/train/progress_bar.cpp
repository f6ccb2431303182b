#include "gpt/train/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/core/format.h"
#include "gpt/core/log.h"

namespace gpt {
namespace {

constexpr std::chrono::milliseconds kBetweenDrawings(100);
constexpr int kBarWidth = 24;

}  // namespace

std::string progress_line(const Progress& p, double seconds, const std::string& activity) {
  // How far the current step is, judging by those before it.
  const double in_step = p.step_seconds > 0 && activity.empty() ? std::min(seconds / p.step_seconds, 0.99) : 0;
  const double share =
      std::min(1.0, (static_cast<double>(p.steps_done) + in_step) / static_cast<double>(p.total_steps));
  std::string line =
      fmt::format("{} {:>3.0f}% {}/{}", format_bar(share, kBarWidth), 100 * share, p.steps_done, p.total_steps);
  if (p.loss) line += fmt::format(" | loss {:.4f}", *p.loss);
  if (p.val_loss) line += fmt::format(" | val {:.4f}", *p.val_loss);
  if (p.tokens_per_second) line += fmt::format(" | {} tok/s", format_count(*p.tokens_per_second));
  if (!activity.empty()) {
    line += " | " + activity;
  } else if (p.step_seconds == 0) {
    line += fmt::format(" | first step, {} so far", format_duration(seconds));
  }
  if (p.remaining_seconds > 0)
    line += fmt::format(" | ETA {}", format_duration(std::max(0.0, p.remaining_seconds - seconds)));
  return line;
}

ProgressBar::ProgressBar() {
  if (log::is_terminal()) thread_ = std::thread([this] { redraw_every_second(); });
}

void ProgressBar::close() {
  {
    std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
  log::status("");
}

void ProgressBar::show(const Progress& progress) {
  std::lock_guard lock(mutex_);
  progress_ = progress;
  activity_.clear();
  step_began_ = Clock::now();
  if (step_began_ - drawn_ >= kBetweenDrawings || progress.steps_done == progress.total_steps) draw();
}

void ProgressBar::show_activity(const std::string& what) {
  std::lock_guard lock(mutex_);
  activity_ = what;
  if (Clock::now() - drawn_ >= kBetweenDrawings) draw();
}

void ProgressBar::redraw_every_second() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, std::chrono::seconds(1), [this] { return is_stopped_; })) draw();
}

void ProgressBar::draw() {
  drawn_ = Clock::now();
  if (!log::is_terminal() || progress_.total_steps == 0) return;
  log::status(progress_line(progress_, std::chrono::duration<double>(drawn_ - step_began_).count(), activity_));
}

}  // namespace gpt
