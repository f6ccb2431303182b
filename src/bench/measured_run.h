// A new run of a configuration on its real data, one update at a time: what all measurements of whole steps have in common.
#pragma once

#include <cstdint>
#include <optional>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/run/measured_memory.h"
#include "gpt/run/plan.h"
#include "gpt/run/state.h"
#include "gpt/run/train_step.h"

namespace gpt::bench {

class MeasuredRun {
 public:
  // Draws from the process's random state, so that no other run may follow.
  explicit MeasuredRun(Config config);

  struct Updates {
    int64_t tokens;
    double seconds;  // of all together
  };
  // Launches one; the number of its tokens. Throws gpt::Error(interrupted) on a signal.
  int64_t launch();
  void wait() const;                  // for what was launched
  Updates update(int64_t count = 1);  // launches so many and waits for them
  at::Tensor loss() const;            // of the last update: a scalar on the device, which is not waited for
  double validation_loss();
  std::optional<MemoryUse> memory() const { return run::measured_memory(state_, step_); }

  // How many updates come before those that are timed: `wanted`, and on a GPU at least as many as recording the step takes, also
  // where it is not recorded. Losses are compared after the same number of updates.
  int64_t warm_up(int64_t wanted) const;
  void require_recorded() const;  // throws gpt::Error where a step that is to be recorded has not been

  const Config& config() const { return config_; }  // with vocab_size set
  bool is_resident() const { return state_.loader.resident(); }
  const DeviceInfo& device() const { return device_; }
  const Precision& precision() const { return precision_; }

 private:
  Config config_;
  Corpus corpus_;
  DeviceInfo device_;
  Precision precision_;
  run::State state_;
  bool is_to_be_recorded_ = false;
  run::TrainStep step_;
  run::Plan plan_;
};

// CPU time of this process so far, all threads together.
double cpu_seconds();

}  // namespace gpt::bench
