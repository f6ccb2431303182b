// One run, followed by what it writes into its folder: the end of its metrics and its status; and while somebody looks at it, all of them,
// its samples, events and warnings.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "gpt/board/followed_file.h"
#include "gpt/report/html_report.h"
#include "gpt/report/run_history.h"
#include "gpt/report/run_page.h"
#include "gpt/report/status_file.h"

namespace gpt::board {

using Clock = std::chrono::steady_clock;

// A line of the table of runs.
struct RunRow {
  std::string name, state, activity = {};  // as RunPage::Live has them
  std::optional<int64_t> step = {};
  int64_t total_steps = 0, parameters = 0;
  std::optional<double> loss = {}, learning_rate = {}, grad_norm = {}, step_ms = {}, tokens_per_second = {},
                        peak_memory_mb = {}, validation_loss = {}, best = {};  // best: of the validation losses
  std::optional<int64_t> tokens = {};
  std::vector<report::DeviceUse> devices = {};
  double remaining_seconds = 0, silent_seconds = 0, written = 0;  // written: when anything was heard last
  bool may_be_told = false;                                       // what to do (control/tell.h)
  bool operator==(const RunRow&) const = default;
};

class FollowedRun {
 public:
  FollowedRun(std::string folder, std::string name);

  const std::string& folder() const { return folder_; }
  const std::string& name() const { return row_.name; }

  // Both return whether there is something new to tell. look(): reads what was written since. check(): whether the process is still there,
  // and for how long it has been silent; to be called about once a second.
  bool look();
  bool check(Clock::time_point now);

  // Somebody looks at all of it, for some time from now on.
  void want(Clock::time_point now);

  const RunRow& row() const { return row_; }
  const report::RunHistory& history() const { return history_; }  // all of it where somebody wants it
  report::RunPage page() const;
  std::optional<report::EvaluationRecord> best() const;  // with the lowest validation loss

  // Each grows with what it counts: `news` with anything, `beginnings` where curves that were told are no more so, `texts` with samples and
  // events.
  struct Versions {
    uint64_t news = 1, beginnings = 1, texts = 1;
  };
  const Versions& versions() const { return versions_; }

 private:
  bool look_at_metrics();
  bool look_at_status();
  bool look_at_report();
  bool look_at_log();
  bool is_held();
  std::string state() const;
  bool tell();

  std::string folder_;
  FollowedLines metrics_, log_;
  FollowedText status_file_;
  std::optional<FileMark> report_mark_, free_lock_;
  bool is_whole_ = false, is_held_ = false, is_report_read_ = false;
  std::optional<Clock::time_point> wanted_until_;
  Clock::time_point heard_ = Clock::now();
  double lock_taken_ = 0;  // seconds since 1970
  report::RunHistory history_;
  std::optional<report::RunStatus> status_;
  std::optional<report::LeftReport> report_;
  std::deque<std::string> warnings_;
  RunRow row_;
  Versions versions_;
};

}  // namespace gpt::board
