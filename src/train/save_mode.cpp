#include "gpt/train/save_mode.h"

#include <fmt/format.h>

#include "gpt/checkpoint/snapshot.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/device/device.h"
#include "gpt/device/host.h"

namespace gpt::train {
namespace {

// Beside the copy a tenth of all memory stays free, for other programs.
bool has_room_for(double copy) {
  constexpr double kLeftFree = 0.1;
  return copy <=
         static_cast<double>(device::free_bytes(at::kCPU)) - kLeftFree * static_cast<double>(host::memory_bytes());
}

void announce_background(double copy) {
  log::info(fmt::format("Checkpoints are written while training goes on, from a copy of {} in the host's memory",
                        format_bytes(copy)));
}

}  // namespace

bool SaveMode::is_background(uint64_t bytes) {
  if (!is_background_) is_background_ = decide(bytes);
  return *is_background_;
}

bool SaveMode::decide(uint64_t bytes) {
  const auto copy = static_cast<double>(bytes);
  if (!checkpoint::is_to_be_copied(asked_, copy)) return false;
  if (!all_(has_room_for(copy))) {
    if (asked_ == AsyncCheckpoint::on)
      log::warn(
          fmt::format("training.async_checkpoint needs a copy of {}, for which the host has no memory: training waits "
                      "while checkpoints are written",
                      format_bytes(copy)));
    return false;
  }
  if (asked_ == AsyncCheckpoint::automatic && all_(is_busy_)) {
    copy_ = bytes;
    return false;
  }
  announce_background(copy);
  return true;
}

void SaveMode::measured(double seconds, double processor_seconds) {
  if (copy_ == 0) return;
  // What writing in the background takes from training, for each second that a processor is busy with it: besides that one the copy, and
  // threads that wait for the one that gave way. Measured with GPT-2 124M on two cores, whose save took 1.05 s of them, and cost 2.4 s.
  constexpr double kCost = 2.3;
  const double in_background = kCost * processor_seconds;
  is_background_ = all_(in_background < seconds);
  if (*is_background_) {
    announce_background(static_cast<double>(copy_));
  } else {
    log::info(
        fmt::format("Training waits {} for each checkpoint: writing it meanwhile would cost about {}, because training "
                    "takes all processors",
                    format_short_duration(seconds), format_short_duration(in_background)));
  }
  copy_ = 0;
}

}  // namespace gpt::train
