// What a run measures about itself: metrics.jsonl, the log lines and the closing table.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/train/evaluator.h"
#include "gpt/train/run_plan.h"

namespace gpt {

// One logged step; means over the steps since the last one where a mean makes sense.
struct StepMetrics {
  int64_t step = 0;  // updates done
  double loss = 0, learning_rate = 0, grad_norm = 0;
  double step_ms = 0, tokens_per_second = 0;
  std::optional<double> mfu;  // share of the device's peak, where that is known
  double peak_memory_mb = 0;
};

// Wall-clock time of the training alone: evaluation, samples and checkpoints stop it.
class Stopwatch {
 public:
  void start() { started_ = Clock::now(); }
  void stop() { elapsed_ += Clock::now() - started_; }
  double seconds() const { return std::chrono::duration<double>(elapsed_).count(); }
  double running_seconds() const { return std::chrono::duration<double>(elapsed_ + (Clock::now() - started_)).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point started_ = Clock::now();
  Clock::duration elapsed_{0};
};

class Metrics {
 public:
  Metrics(const std::string& jsonl_path, const RunPlan& plan);

  void step(const StepMetrics& metrics);
  void evaluation(int64_t step, const Evaluation& evaluation, bool best, double seconds);
  void epoch(int64_t epoch, double mean_loss, double seconds, double sequences_per_second);
  const std::optional<StepMetrics>& last_step() const { return last_; }
  std::optional<double> last_val_loss() const { return last_val_loss_; }

  // Marks `steps` more steps as having taken `seconds`, for the closing table.
  void timed(int64_t steps, int64_t tokens, double seconds, bool warm_up);
  std::string closing_table() const;

 private:
  void write(const std::string& line);

  struct Segment {
    int64_t first_step, steps, tokens;
    double seconds;
    bool warm_up;
  };
  AppendFile file_;
  bool lost_line_ = false;
  RunPlan plan_;
  std::vector<Segment> segments_;
  int64_t timed_steps_ = 0;
  std::optional<StepMetrics> last_;
  std::optional<double> last_val_loss_;
};

}  // namespace gpt
