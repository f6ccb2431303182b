// The cadence of a run: update, log, evaluate, sample, checkpoint, stop. What each of them is lives elsewhere.
#pragma once

#include <optional>
#include <string>

#include "gpt/config/training_config.h"
#include "gpt/core/error.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/tokenizer/tokenizer.h"
#include "gpt/train/evaluator.h"
#include "gpt/train/metrics.h"
#include "gpt/train/run_folder.h"
#include "gpt/train/run_plan.h"
#include "gpt/train/run_state.h"
#include "gpt/train/train_step.h"

namespace gpt {

class Trainer {
 public:
  Trainer(RunState& state, const TrainingConfig& config, const RunPlan& plan, const Corpus& corpus, const RunFolder& folder,
          const Precision& precision, const DeviceInfo& device);

  // Runs to the end, or to a signal: ok, interrupted (130) or terminated (143), the checkpoint saved in each case.
  // Throws gpt::Error: numerics after max_skipped_steps non-finite updates in a row, disk when the last save fails.
  ExitCode run();

 private:
  bool update();            // false: a signal came in the middle, nothing has changed
  void close_log_interval(const StepResult& result, double learning_rate);
  void check_skips();
  void close_epoch();
  void periodic_work();     // evaluation, sample, checkpoint: what is due after this step
  void evaluate();
  void write_sample();
  void save(const std::string& path, bool must);
  void save_last(bool must) { save(folder_.checkpoint_path(), must); }
  void finish();

  RunState& state_;
  const TrainingConfig config_;
  const RunPlan plan_;
  const Corpus& corpus_;
  const RunFolder& folder_;
  const Precision precision_;
  const DeviceInfo device_;
  TrainStep train_step_;
  Evaluator evaluator_;
  Metrics metrics_;

  Stopwatch stopwatch_;                     // training alone
  int64_t first_step_ = 0, tokens_ = 0;     // of this start
  struct Mark { int64_t step = 0, tokens = 0; double seconds = 0; };
  Mark logged_, epoch_;                     // where the log interval and the epoch began
  at::Tensor epoch_loss_;                   // sum of finite losses of the epoch, on the device
  int64_t reported_skips_ = 0, saved_step_ = -1;
};

}  // namespace gpt
