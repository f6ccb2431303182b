// What a run says and does about updates that were not applied, because their numbers were not finite or were a spike
// (training.on_divergence).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/report/listener.h"
#include "gpt/run/decisions.h"
#include "gpt/run/run.h"
#include "gpt/train/checkpoint_keeper.h"

namespace gpt::train {

class Divergence {
 public:
  Divergence(run::Run& run, CheckpointKeeper& checkpoints, run::Decisions& decisions, report::Listeners& listeners);

  // After each update: goes back to a checkpoint where the update was a spike and training.on_divergence is rollback. Returns why the run
  // must end instead, or nothing. Reads 4 bytes from the device with stop and rollback, which must know before the next update, and
  // otherwise nothing. All processes of the run call it.
  std::optional<std::string> after_update();

  // Says how many updates have been skipped since the last time. Throws gpt::Error(numerics) where training.max_skipped_steps or more have
  // been skipped in a row.
  void report_skips();

 private:
  std::optional<std::string> go_back(const ops::Spike& spike);
  bool lower_rate();
  std::string describe(const ops::Spike& spike) const;
  void report(int64_t updates, const std::string& as, const std::string& why);

  run::Run& run_;
  run::State& state_ = run_.state();
  const CadenceConfig& cadence_ = run_.setup().config.training.cadence;
  CheckpointKeeper& checkpoints_;
  run::Decisions& decisions_;
  report::Listeners& listeners_;
  int64_t reported_skips_, reported_spikes_;
  std::optional<int64_t> applied_when_back_;  // updates that the weights had seen when the run last went back
};

}  // namespace gpt::train
