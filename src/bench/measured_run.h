// A new run of a configuration on its real data, one update at a time: what all measurements of whole steps have in common.
#pragma once

#include <cstdint>
#include <optional>

#include "gpt/run/measured_memory.h"
#include "gpt/run/run.h"

namespace gpt::bench {

class MeasuredRun {
 public:
  // Draws from the process's random state, so that no other run may follow.
  explicit MeasuredRun(run::Setup setup);

  struct Updates {
    int64_t tokens;
    double seconds;  // the time of all together
  };
  // Launches one; the number of its tokens. Throws gpt::Error(interrupted) on a signal.
  int64_t launch();
  void wait() const;                  // waits for what was launched
  Updates update(int64_t count = 1);  // launches so many and waits for them
  at::Tensor loss() const;            // loss of the last update: a scalar on the device, which is not waited for
  double validation_loss();
  std::optional<report::MemoryUse> memory() const { return run::measured_memory(run_.state(), run_.step()); }

  int64_t warm_up(int64_t wanted) const { return run::updates_before_timing(device().device, wanted); }
  void require_recorded() const;  // throws gpt::Error where a step that is to be recorded has not been

  const run::Setup& setup() const { return setup_; }
  bool is_resident() const { return run_.state().loader.resident(); }
  const device::DeviceInfo& device() const { return setup_.device; }
  const device::Precision& precision() const { return setup_.precision; }

 private:
  const run::Setup setup_;
  run::Run run_;
  bool is_to_be_recorded_ = false;
};

}  // namespace gpt::bench
