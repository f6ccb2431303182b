// How a run does after a third of its steps, by which the poor ones of a sweep are told from the better half.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/report/listener.h"
#include "gpt/report/run_history.h"

namespace gpt::report {

// The first validation after a third of the steps, unless it is the first of all.
struct EarlyLoss {
  double loss = 0;  // NaN where the run has diverged
  std::optional<double> bits_per_byte = {};
};
std::optional<EarlyLoss> early_loss(const RunHistory& history, int64_t total_steps);

// The worse half of the runs that have one, and of an odd number the smaller part: by bits per byte where all have them, as runs may differ
// in their tokens.
std::vector<bool> find_poor(const std::vector<std::optional<EarlyLoss>>& losses);

// Requests that the run stops, as by SIGTERM, when it has its early loss, with the next update, so that a sample is still written. A run that
// has it already stops before its first one.
class StopAtThird : public Listener {
 public:
  explicit StopAtThird(std::string metrics_path) : metrics_path_(std::move(metrics_path)) {}
  void begin(const RunRecord& run) override;
  void length(int64_t total_steps, double /*epochs*/) override { total_steps_ = total_steps; }
  void evaluation(const EvaluationRecord& evaluation) override;
  void activity(const ActivityRecord& activity) override;

 private:
  std::string metrics_path_;
  RunHistory history_;
  int64_t total_steps_ = 0;
};

}  // namespace gpt::report
