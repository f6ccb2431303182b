#include "gpt/board/followed_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <utility>

#include "gpt/config/run_files.h"
#include "gpt/control/tell.h"
#include "gpt/core/lock.h"

namespace gpt::board {
namespace {

constexpr uint64_t kTail = 64 << 10;  // bytes of metrics that have the latest step and what goes with it
constexpr uint64_t kMostStatus = 64 << 10;
constexpr size_t kMostWarnings = 20, kMostWarningBytes = 2000;
constexpr std::chrono::seconds kWantedFor(60);
constexpr double kLongSilence = 300;  // seconds, at least
constexpr int64_t kEveryStep = std::numeric_limits<int64_t>::max();

template <class Number>
std::optional<Number> finite(std::optional<Number> value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

}  // namespace

FollowedRun::FollowedRun(std::string folder, std::string name)
    : folder_(std::move(folder)),
      metrics_(folder_ + "/" + kMetricsFile, kTail),
      log_(folder_ + "/" + kRunLog),
      status_file_(folder_ + "/" + kStatusFile, kMostStatus) {
  row_.name = std::move(name);
  look();
  check(Clock::now());
}

void FollowedRun::want(Clock::time_point now) {
  wanted_until_ = now + kWantedFor;
  if (is_whole_) return;
  is_whole_ = true;
  metrics_ = FollowedLines(folder_ + "/" + kMetricsFile);
  log_ = FollowedLines(folder_ + "/" + kRunLog);
  history_ = report::RunHistory();
  warnings_.clear();
  report_mark_.reset(), is_report_read_ = false;
  ++versions_.beginnings;
  look();
}

bool FollowedRun::look() {
  const bool has_news = look_at_status() | look_at_metrics() | look_at_report() | look_at_log();
  if (has_news) heard_ = Clock::now();
  if (tell()) return true;
  if (has_news) ++versions_.news;
  return has_news;
}

bool FollowedRun::look_at_metrics() {
  const auto anew = [this] {
    std::deque<report::SampleRecord> samples = std::move(history_.samples);
    std::deque<report::RunHistory::Event> events = std::move(history_.events);
    history_ = report::RunHistory();
    history_.samples = std::move(samples), history_.events = std::move(events);
    ++versions_.beginnings;
  };
  return metrics_.look(anew, [this](std::string_view line) { report::read_metrics_line(line, kEveryStep, history_); });
}

bool FollowedRun::look_at_status() {
  const std::optional<std::string> text = status_file_.look();
  if (text) status_ = report::read_status(*text);
  return text.has_value();
}

// It is large. Where nobody looks at the run, it is read only for what a run without a status says.
bool FollowedRun::look_at_report() {
  const std::string path = folder_ + "/" + kReportFile;
  if (!is_whole_ && status_) return false;
  const std::optional<FileMark> mark = mark_of(path);
  if (is_report_read_ && mark == report_mark_) return false;
  report_mark_ = mark, is_report_read_ = true;
  report::RunHistory texts;
  report_ = report::read_report(path, is_whole_ ? &texts : nullptr);
  history_.samples = std::move(texts.samples), history_.events = std::move(texts.events);
  ++versions_.texts;
  return true;
}

// "2026-11-29 08:06:02 warning: ..."
bool FollowedRun::look_at_log() {
  if (!is_whole_) return false;
  bool has_news = false;
  const auto anew = [&] { warnings_.clear(), has_news = true; };
  log_.look(anew, [&](std::string_view line) {
    constexpr size_t kMoment = sizeof "2026-11-29 08:06:02";
    if (line.size() < kMoment) return;
    const std::string_view message = line.substr(kMoment);
    if (!message.starts_with("warning: ") && !message.starts_with("error: ")) return;
    warnings_.push_back(report::clipped(line, kMostWarningBytes));
    if (warnings_.size() > kMostWarnings) warnings_.pop_front();
    has_news = true;
  });
  return has_news;
}

bool FollowedRun::check(Clock::time_point now) {
  if (wanted_until_ && now > *wanted_until_) {  // its memory is somebody else's
    wanted_until_.reset();
    is_whole_ = false;
    metrics_ = FollowedLines(folder_ + "/" + kMetricsFile, kTail);
    history_ = report::RunHistory();
    warnings_.clear();
    ++versions_.beginnings;
    look();
  }
  is_held_ = is_held();
  const double silence = std::chrono::duration<double>(now - heard_).count();
  const double step_seconds = history_.last_step ? history_.last_step->step_ms / 1e3 : 0;
  const bool is_long = is_held_ && silence > std::max(kLongSilence, 5 * step_seconds);
  row_.silent_seconds = is_long ? 60 * std::floor(silence / 60) : 0;
  return tell();
}

// Trying a lock takes it for a moment, in which the run that is just about to begin would be refused. So a lock is tried only where it has
// been there for a while, and one that was found free not again before it is taken.
bool FollowedRun::is_held() {
  constexpr double kWhile = 2;  // seconds
  const std::optional<FileMark> lock = mark_of(folder_ + "/.lock");
  lock_taken_ = lock ? lock->changed_at() : 0;
  if (!lock || lock == free_lock_) return false;
  if (std::abs(static_cast<double>(std::time(nullptr)) - lock->changed_at()) < kWhile || is_locked(folder_))
    return true;
  free_lock_ = lock;
  return false;
}

std::string FollowedRun::state() const {
  constexpr double kClocks = 1;  // seconds by which a file's time may be behind the program's
  const bool is_of_this_start = status_ && status_->written > lock_taken_ - kClocks;
  if (is_held_ && !is_of_this_start) return !status_ && report_ && report_->state.is_open() ? "running" : "starting";
  if (status_) {
    switch (status_->state) {
      case report::RunStatus::State::running: return is_held_ ? "running" : "killed";
      case report::RunStatus::State::stopped: return "stopped";
      case report::RunStatus::State::done: return "done";
    }
  }
  if (report_) return report_->state.has_ended ? "done" : report_->state.is_open() ? "killed" : "stopped";
  return "";
}

// Puts the row together; whether it has changed.
bool FollowedRun::tell() {
  RunRow row{.name = row_.name, .state = state(), .silent_seconds = row_.silent_seconds};
  const auto& step = history_.last_step;
  const int64_t last = std::max(history_.loss.last_step(), history_.validation_loss.last_step());
  if (status_ || report_ || last >= 0)
    row.step = std::max({last, status_ ? status_->step : 0, !status_ && report_ ? report_->step : 0});
  row.total_steps = status_ ? status_->total_steps : report_ ? report_->total_steps : 0;
  row.parameters = status_ ? status_->parameters : report_ ? report_->parameters : 0;
  if (row.state == "running") {
    row.activity = status_ ? status_->activity + (status_->how_far.empty() ? "" : " " + status_->how_far) : "training";
    row.remaining_seconds = status_ ? status_->remaining_seconds : 0;
    row.may_be_told = control::may_be_told(folder_);
    row.devices = history_.last_devices;
  }
  if (step) {
    row.loss = finite<double>(step->loss), row.learning_rate = finite<double>(step->learning_rate);
    row.grad_norm = finite<double>(step->grad_norm), row.step_ms = finite<double>(step->step_ms);
    row.tokens_per_second = finite<double>(step->tokens_per_second);
    row.peak_memory_mb = finite<double>(step->peak_memory_mb);
    row.written = step->at.time;
    if (step->at.tokens > 0) row.tokens = step->at.tokens;
  }
  if (status_) row.written = std::max(row.written, status_->written);
  if (history_.last_evaluation) row.validation_loss = finite<double>(history_.last_evaluation->loss);
  if (status_ && status_->validation && !row.validation_loss)
    row.validation_loss = finite<double>(status_->validation->loss);
  if (const auto best = this->best()) row.best = best->loss;
  const bool is_new = row != row_;
  row_ = std::move(row);
  if (is_new) ++versions_.news;
  return is_new;
}

std::optional<report::EvaluationRecord> FollowedRun::best() const {
  std::optional<report::EvaluationRecord> best;
  const auto take = [&best](const std::optional<report::EvaluationRecord>& other) {
    if (other && std::isfinite(other->loss) && (!best || other->loss < best->loss)) best = other;
  };
  take(history_.best_evaluation);
  if (status_) take(status_->best_validation);
  if (!status_ && report_ && report_->best_validation_loss)
    take(report::EvaluationRecord{.loss = *report_->best_validation_loss, .bits_per_byte = std::nullopt});
  return best;
}

report::RunPage FollowedRun::page() const {
  report::RunPage page{.name = row_.name,
                       .has_ended = row_.state == "done",
                       .stopped = status_   ? status_->why
                                  : report_ ? report_->state.stopped
                                            : "",
                       .written = row_.written,
                       .step = row_.step.value_or(0),
                       .total_steps = row_.total_steps,
                       .epochs = status_   ? status_->epochs
                                 : report_ ? report_->epochs
                                           : 0,
                       .parameters = row_.parameters,
                       .machine = report_ ? report_->machine : "",
                       .configuration = report_ ? report_->configuration : ""};
  if (report_) page.efficiency = report_->efficiency;
  page.live = report::RunPage::Live{.state = row_.state,
                                    .activity = row_.activity,
                                    .remaining_seconds = row_.remaining_seconds,
                                    .silent_seconds = row_.silent_seconds,
                                    .warnings = {warnings_.begin(), warnings_.end()},
                                    .may_be_told = row_.may_be_told};
  return page;
}

}  // namespace gpt::board
