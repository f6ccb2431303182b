#include "gpt/plan/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/device/memory.h"
#include "gpt/layout/tuning.h"
#include "gpt/ops/part.h"
#include "gpt/ops/probe.h"
#include "plan/terms/terms.h"

namespace gpt::plan {

double MachineSpeed::least_seconds(const Work& work) const {
  return std::max(work.flops / flops, work.bytes / bytes_per_second);
}

void MachineSpeed::keep_faster(const MachineSpeed& other) {
  flops = std::max(flops, other.flops);
  bytes_per_second = std::max(bytes_per_second, other.bytes_per_second);
}

MachineSpeed measure_machine(at::Device device, at::ScalarType type) {
  constexpr double kSeconds = 0.2;        // for each, and as much to prepare both
  device::release_unused_memory(device);  // there is room for the matrices, and then for what comes next
  const MachineSpeed speed{.flops = ops::measure_product_speed(device, type, kSeconds),
                           .bytes_per_second = ops::measure_copy_speed(device, kSeconds)};
  device::release_unused_memory(device);
  return speed;
}

void measure_again(MachineSpeed& speed, at::Device device, at::ScalarType type) {
  try {
    speed.keep_faster(measure_machine(device, type));
  } catch (const std::exception& error) {
    log::info(fmt::format("Measuring the speed of this machine failed ({})", first_line(error.what())));
  }
}

std::string explain_limit(const MachineSpeed& speed) {
  return fmt::format(
      "The limit is the time of the operations or of the bytes, each read or written once, whichever is longer, at the speeds of a large "
      "product ({}/s) and of a large copy ({}/s), measured in the same run; what fits into a cache can be faster.",
      format_flops(speed.flops), format_bytes(speed.bytes_per_second));
}

std::vector<PartWork> work_of_step(const ModelConfig& whole, const TrainingConfig& training,
                                   const device::Precision& precision, double tokens) {
  const auto micro_steps = static_cast<double>(training.gradient_accumulation_steps);
  const terms::StepOperators step{.training = training,
                                  .model = in_training(whole, training),
                                  .rows = layout::parameter_table(whole, training.tuning),
                                  .types = {.products = precision.compute_type(),
                                            .stream = precision.weight_type(),
                                            .gradient = device::gradient_type(training, precision.end_to_end)},
                                  .micro_steps = micro_steps,
                                  .tokens = tokens / micro_steps};
  terms::StepWork sum;
  for (const terms::Term& term : terms::all())
    if (term.work) term.work(step, sum);
  std::vector<PartWork> parts;
  for (const char* part : ops::part::kAll) parts.push_back({part, sum.of[part]});
  return parts;
}

double least_seconds(const std::vector<PartWork>& parts, const MachineSpeed& speed) {
  double sum = 0;
  for (const PartWork& part : parts) sum += speed.least_seconds(part.work);
  return sum;
}

}  // namespace gpt::plan
