#include "gpt/config/pipeline_parallel.h"

#include <fmt/format.h>

#include <cstdint>

#include "gpt/core/format.h"

namespace gpt::config {
namespace {

std::string obstacle_of_training(const TrainingConfig& training) {
  if (!training.execution.use_compile)
    return "pipeline_parallel needs use_compile's operators, whose dropout masks are those of the whole model; set "
           "pipeline_parallel to 1, or use_compile to true";
  if (training.precision.amp_mode == AmpMode::autocast && training.precision.use_amp)
    return "pipeline_parallel does not go with amp_mode autocast, which keeps a copy of all weights for each micro-batch on its way; "
           "set amp_mode to end_to_end, use_amp to false, or pipeline_parallel to 1";
  if (training.execution.swap_activations != 0)
    return "swap_activations moves the activations of one micro-batch at a time, and pipeline_parallel has several on their way; set "
           "swap_activations to 0, or pipeline_parallel to 1";
  if (!training.distillation.from.empty())
    return "distill_from needs all of a teacher beside the head, which only the last stage has; set pipeline_parallel to 1, or leave "
           "distill_from out";
  return "";
}

}  // namespace

std::string pipeline_parallel_obstacle(const Config& config) {
  const int64_t stages = config.distributed.pipeline_parallel, processes = config.distributed.processes,
                of_model = config.distributed.model_processes();
  if (stages == 1) return "";
  if (processes > 1 && processes % stages != 0)
    return fmt::format("pipeline_parallel {} does not divide {} processes; set processes to {}", stages, processes,
                       nearest_multiples(processes, of_model));
  if (processes > 1 && processes % of_model != 0)
    return fmt::format(
        "pipeline_parallel {} and tensor_parallel {} give each model {} processes, which do not divide {}; set processes to {}",
        stages, config.distributed.tensor_parallel, of_model, processes, nearest_multiples(processes, of_model));
  if (stages > config.model.n_layer)
    return fmt::format(
        "pipeline_parallel {} is more than the {} of the model, and each stage needs one; set it to {} or less", stages,
        plural(config.model.n_layer, "layer"), config.model.n_layer);
  return obstacle_of_training(config.training);
}

}  // namespace gpt::config
