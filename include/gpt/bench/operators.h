// How fast each operator of the model is on this machine, beside LibTorch's and beside what the machine can do: `gpt-bench ops`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpt/bench/findings.h"
#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/plan/limits.h"

namespace gpt::bench {

struct OperatorSpeed {
  std::string name;    // "attention, with backward"
  double ours_ms = 0;  // medians of alternating runs
  double libtorch_ms = 0;
  plan::Work work = {};
};

struct OperatorSpeeds {
  at::ScalarType type = at::kFloat;  // type of the activations and of the weights that products read
  plan::MachineSpeed speed = {};
  std::vector<OperatorSpeed> rows;
  int64_t threads = 0;  // CPU threads
  bool complete = false;
};

// Measures the operators with the shapes of a micro-batch of `config`, whose vocab_size is set, for about `seconds`. `progress` is
// called before each with the share that is done; where it returns false, what has been measured so far is returned.
OperatorSpeeds measure_operators(const UpdateConfig& config, const device::DeviceInfo& device, at::ScalarType type,
                                 double seconds,
                                 const std::function<bool(double share, const std::string& name)>& progress);

Findings findings(const OperatorSpeeds& speeds);

}  // namespace gpt::bench
