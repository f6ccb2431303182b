#include "gpt/plan/memory_settings.h"

#include <fmt/format.h>

#include "gpt/config/batch.h"
#include "gpt/device/precision.h"

namespace gpt::plan {
namespace {

MemorySetting recomputation(const char* level_name, GradientCheckpointing level, const char* price) {
  return {.name = level_name,
          .settings = {fmt::format("gradient_checkpointing: {}", level_name)},
          .price = price,
          .apply = [level](TrainingConfig& t) { t.execution.gradient_checkpointing = level; }};
}

}  // namespace

std::vector<MemorySetting> memory_settings(const device::DeviceInfo& device) {
  return {
      recomputation("activation", GradientCheckpointing::activation, "activations are computed twice"),
      recomputation("norm", GradientCheckpointing::norm, "norms and activations are computed twice, products are not"),
      recomputation("selective", GradientCheckpointing::selective,
                    "what follows attention is computed twice: about a sixth more time"),
      recomputation("block", GradientCheckpointing::block,
                    "most of the forward pass is computed twice: about a quarter more time"),
      {.name = "8-bit",
       .settings = {"use_8bit: true"},
       .price = "the optimizer's state is rounded to 8-bit codes",
       .apply = [](TrainingConfig& t) { t.optimizer.state_dtype = StateDtype::int8; }},
      {.name = "offload",
       .settings = {"offload_optimizer: 1"},
       .price = "every update moves the optimizer's state over the bus and back",
       .apply = [](TrainingConfig& t) { t.optimizer.offload = 1; },
       .obstacle = device.device.is_cuda() ? "" : "needs a GPU"},
      {.name = "swap",
       .settings = {"swap_activations: auto"},
       .price = "what blocks keep moves over the bus and back beside computing, which may wait for it",
       .apply = [](TrainingConfig& t) { t.execution.swap_activations.reset(); },
       .obstacle = device.device.is_cuda() ? "" : "needs a GPU",
       .is_proven = false},
      {.name = "no_master",
       .settings = {"master_weights: false"},
       .price = "weights have 16 bits alone, and updates are rounded at random",
       .apply = [](TrainingConfig& t) { t.precision.master_weights = false; },
       .obstacle = device::bfloat16_emulation(device)},
      {.name = "bfloat16_gradients",
       .settings = {"gradient_dtype: bfloat16"},
       .price = "every micro-batch that is added to a gradient rounds it",
       .apply = [](TrainingConfig& t) { t.precision.gradient_dtype = GradientDtype::bfloat16; },
       .obstacle = device::bfloat16_emulation(device)},
  };
}

MemorySetting smaller_batch(const TrainingConfig& training) {
  const int64_t part = config::largest_divisor(training.batch_size, training.batch_size / 2),
                steps = training.gradient_accumulation_steps * (training.batch_size / part);
  return {.name = "accumulation",
          .settings = {fmt::format("batch_size: {}", part), fmt::format("gradient_accumulation_steps: {}", steps)},
          .price = "the same effective batch; slower where smaller products leave the device idle",
          .apply = [part, steps](TrainingConfig& t) { t.batch_size = part, t.gradient_accumulation_steps = steps; }};
}

}  // namespace gpt::plan
