#include "gpt/train/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/surroundings.h"
#include "gpt/core/terminal.h"

namespace gpt::train {
namespace {

constexpr std::chrono::milliseconds kBetweenDrawings(100);
constexpr int kWidestBar = 24, kNarrowestBar = 6;

// What follows the steps, the most important first.
std::vector<std::string> fields_of(const Progress& p, double seconds, const std::string& activity) {
  std::vector<std::string> fields;
  if (p.remaining_seconds > 0) fields.push_back("ETA " + format_duration(std::max(0.0, p.remaining_seconds - seconds)));
  if (!activity.empty()) {
    fields.push_back(activity);
  } else if (p.step_seconds == 0) {
    fields.push_back(fmt::format("first step, {} so far", format_duration(seconds)));
  }
  if (p.loss) fields.push_back(fmt::format("loss {:.4f}", *p.loss));
  if (p.val_loss) fields.push_back(fmt::format("val {:.4f}", *p.val_loss));
  if (p.tokens_per_second) fields.push_back(format_count(*p.tokens_per_second) + " tok/s");
  return fields;
}

}  // namespace

std::string progress_line(const Progress& p, double seconds, const std::string& activity, int columns) {
  // How far the current step is, judging by those before it.
  const double in_step = p.step_seconds > 0 && activity.empty() ? std::min(seconds / p.step_seconds, 0.99) : 0;
  const double share =
      std::min(1.0, (static_cast<double>(p.steps_done) + in_step) / static_cast<double>(p.total_steps));
  std::string line = fmt::format("{:>3.0f}% {}/{}", 100 * share, p.steps_done, p.total_steps);
  constexpr int kAroundBar = 3;  // its brackets, and a space
  const auto left = [&line, columns] { return columns - static_cast<int>(line.size()); };
  int of_bar = 0;  // the first field matters more than the bar, and the others less
  for (const std::string& field : fields_of(p, seconds, activity)) {
    const std::string more = " | " + field;
    if (left() - std::ssize(more) < of_bar) break;
    line += more;
    of_bar = kAroundBar + kNarrowestBar;
  }
  const int width = std::min(kWidestBar, left() - kAroundBar);
  return width < kNarrowestBar ? line : fmt::format("{} {}", format_bar(share, width), line);
}

ProgressBar::ProgressBar() {
  if (log::is_terminal()) thread_ = surroundings::thread_if_possible([this] { redraw_every_second(); });
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

void ProgressBar::show_activity(const Progress& progress, const std::string& what) {
  std::lock_guard lock(mutex_);
  if (progress.steps_done != progress_.steps_done) step_began_ = Clock::now();
  progress_ = progress;
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
  // The last column stays free, as log.cpp explains.
  log::status(progress_line(progress_, std::chrono::duration<double>(drawn_ - step_began_).count(), activity_,
                            terminal_columns(STDERR_FILENO) - 1));
}

}  // namespace gpt::train
