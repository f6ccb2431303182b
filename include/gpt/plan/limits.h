// How fast a step could be at best: the least that each of its parts has to compute and to move, over what this machine reaches where
// nothing else holds it up, in a large product and in a large copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/device/precision.h"
#include "gpt/plan/operator_work.h"

namespace gpt::plan {

struct MachineSpeed {
  double flops = 0;             // a second, of a large product
  double bytes_per_second = 0;  // read and written by a large copy

  // Computing and moving go on at the same time: the longer of the two counts.
  double least_seconds(const Work& work) const;
  // The faster of each, because another program can slow a measurement down but not speed it up.
  void keep_faster(const MachineSpeed& other);
  bool is_known() const { return flops > 0; }
};

// For products in `type`. Takes about half a second; draws from no random state.
MachineSpeed measure_machine(at::Device device, at::ScalarType type);
// Measures and keeps the faster. Where measuring fails, as without memory for it, a line says so and the speeds stay as they are.
void measure_again(MachineSpeed& speed, at::Device device, at::ScalarType type);

// What "of the limit" means in a table, with the speeds.
std::string explain_limit(const MachineSpeed& speed);

struct PartWork {
  std::string name;  // one of ops::part::kAll
  Work work;
};

// The work of a step with so many tokens, in the order of ops::part::kAll.
std::vector<PartWork> work_of_step(const ModelConfig& model, const TrainingConfig& training,
                                   const device::Precision& precision, double tokens);

// One part after the other.
double least_seconds(const std::vector<PartWork>& parts, const MachineSpeed& speed);

}  // namespace gpt::plan
