// Whether a measured step is as fast as it should be on this device, and if not, what the likely cause is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/plan/check.h"

namespace gpt::diagnose {

struct SpeedFacts {
  double step_seconds = 0;       // what a measured update took
  double product_speed = 0;      // FLOP/s of a large matrix product in the run's precision, measured here
  std::optional<double> peak;    // FLOP/s of the device by its vendor's data sheet
  std::string attention;         // as attention_path() names it
  int64_t threads = 0;           // of the CPU
  bool is_told_threads = false;  // by the configuration
  int64_t cores = 0;
  double load = 0;  // the load average before it was measured: threads of other programs that run or wait to
};

// `config.training.batch_size` is the one that batches really have. Slow is a warning where something can be done about it.
plan::Check check_speed(const UpdateConfig& config, const device::DeviceInfo& device,
                        const device::Precision& precision, const SpeedFacts& facts);

}  // namespace gpt::diagnose
