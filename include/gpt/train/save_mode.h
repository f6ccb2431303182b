// Whether checkpoints are written at once, while training waits, or in the background, from a copy of the state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "gpt/config/training_config.h"

namespace gpt::train {

class SaveMode {
 public:
  // `is_busy`: training takes all processors that this process may use, and a thread which writes would take them from it. `all`: whether
  // something is so in each of the processes that write together, which then all ask it at the same points.
  using Agree = std::function<bool(bool own)>;
  SaveMode(
      AsyncCheckpoint asked, bool is_busy, Agree all = [](bool own) { return own; })
      : asked_(asked), is_busy_(is_busy), all_(std::move(all)) {}

  // For a checkpoint of so many bytes. What the first one decides stays, and the log says it; but where processors are busy and the
  // choice is the program's, that is written at once, and measured() decides.
  bool is_background(uint64_t bytes);
  // One was written at once in so many seconds, for which the process had its processors for so many seconds, added up.
  void measured(double seconds, double processor_seconds);

 private:
  bool decide(uint64_t bytes);

  const AsyncCheckpoint asked_;
  const bool is_busy_;
  const Agree all_;
  std::optional<bool> is_background_;
  uint64_t copy_ = 0;  // bytes; 0: there is nothing to measure
};

}  // namespace gpt::train
