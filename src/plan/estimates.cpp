#include "gpt/plan/estimates.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gpt/layout/tuning.h"
#include "gpt/model/compile.h"
#include "gpt/optim/newton_schulz.h"
#include "gpt/optim/optimizer_state.h"
#include "gpt/parallel/division.h"
#include "gpt/products/product.h"
#include "plan/terms/terms.h"

namespace gpt::plan {
namespace {

// The share of these parameters' optimizer state that lies in the process with most of it.
double share_of_muon(const std::vector<layout::ParameterRow>& rows, const TrainingConfig& training, int64_t processes) {
  const std::vector<int64_t> owners = parallel::owners_of_matrices(rows, training.optimizer, processes);
  std::vector<double> of_matrices(static_cast<size_t>(processes));
  double all = 0;
  auto owner = owners.begin();
  for (const optim::StateRange& range : optim::state_ranges(rows, layout::flat_layout(rows), training.optimizer)) {
    double bytes = 0;
    for (const optim::OptimizerSlot& slot : optim::optimizer_slots(range.form))
      bytes += static_cast<double>((range.end - range.begin) / slot.values) *
               static_cast<double>(c10::elementSize(slot.dtype));
    all += bytes;
    if (range.form.kind != OptimizerKind::adamw) of_matrices[static_cast<size_t>(*owner++)] += bytes;
  }
  if (all == 0) return 0;  // of a stage that is not trained
  const double divided = all - std::accumulate(of_matrices.begin(), of_matrices.end(), 0.0);
  return (*std::max_element(of_matrices.begin(), of_matrices.end()) + divided / static_cast<double>(processes)) / all;
}

// The largest share in any stage.
double state_share(const ModelConfig& model, const TrainingConfig& training, const DistributedConfig& distributed) {
  const int64_t processes = distributed.data_processes(), stages = distributed.pipeline_parallel;
  if (distributed.zero == 0 || processes == 1) return 1;
  if (!training.optimizer.has_muon()) return 1 / static_cast<double>(processes);
  double largest = 0;
  for (int64_t stage = 0; stage < stages; ++stage)
    largest = std::max(largest, share_of_muon(layout::cut(layout::parameter_table(model, training.tuning), model,
                                                          {.stage = stage, .stages = stages}),
                                              training, processes));
  return largest;
}

// As parallel::Division::divides_checkpoints() has it.
int64_t checkpoint_parts(const DistributedConfig& distributed) {
  const int64_t model = distributed.model_processes(), data = distributed.data_processes();
  return model > 1 || distributed.zero > 0 ? model * data : 1;
}

report::MemoryUse estimate_part(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                                const layout::ModelPart& part) {
  const terms::RunPart run(model, training, form, part);
  terms::MemoryTerms sum;
  for (const terms::Term& term : terms::all())
    if (term.memory) term.memory(run, sum);
  report::MemoryUse use = sum.use;
  const double block = sum.block + sum.product, passes = std::max(sum.head, block) + sum.passes;
  if (sum.head >= block) use.logits = sum.logits;
  use.workspace += std::max(passes, sum.apart - use.activations) - use.logits;
  // What LibTorch's operators make in between differs from one processor to another.
  constexpr double kBetweenOperators = 0.01;
  if (!form.own_operators) use.workspace += kBetweenOperators * use.activations;
  return use;
}

}  // namespace

ActivationForm activation_form(const ModelConfig& model, const TrainingConfig& training,
                               const DistributedConfig& distributed, const device::DeviceInfo& device,
                               const device::Precision& precision) {
  return activation_form(model, training, distributed, device, precision,
                         model::attention_path(model, training.execution, device.device, precision.compute_type(),
                                               /*training=*/true));
}

ActivationForm activation_form(const ModelConfig& model, const TrainingConfig& training,
                               const DistributedConfig& distributed, const device::DeviceInfo& device,
                               const device::Precision& precision, const std::string& attention) {
  const ExecutionConfig& execution = training.execution;
  return {.compute_type = precision.compute_type(),
          .fused_attention = !attention.starts_with("math"),
          .cuda = device.device.is_cuda(),
          .own_operators = execution.use_compile,
          .rounds_products = device.device.is_cpu() && ops::cpu::rounds_products_from_float32(),
          .adds_products = device.device.is_cpu() && ops::cpu::adds_bfloat16_products(),
          .product_workspace = device.device.is_cpu() ? ops::cpu::product_workspace(precision.compute_type()) : 0,
          .is_recorded = (distributed.zero < 2 || distributed.data_processes() == 1) &&
                         distributed.model_processes() == 1 &&
                         model::effective_mode(training, model, device.device).records,
          .multiprocessors = device.multiprocessors,
          .end_to_end = precision.end_to_end,
          .state_share = state_share(model, training, distributed),
          .gradient_parts = distributed.zero > 1 ? distributed.data_processes() : 1,
          .weight_parts = distributed.zero > 2 ? distributed.data_processes() : 1,
          .gradient_lanes = parallel::lanes_of_each(distributed.lanes, distributed.data_processes()),
          .model_parts = distributed.tensor_parallel,
          .stages = distributed.pipeline_parallel,
          .checkpoint_parts = checkpoint_parts(distributed),
          .micro_batches =
              training.batch_size == 0
                  ? std::nullopt
                  : std::optional((training.gradient_accumulation_steps - 1) / distributed.data_processes() + 1),
          .newton_schulz = optim::newton_schulz_type(device)};
}

report::MemoryUse estimate_memory(const ModelConfig& model, const TrainingConfig& training,
                                  const ActivationForm& form) {
  report::MemoryUse most;
  for (int64_t stage = 0; stage < form.stages; ++stage) {
    const report::MemoryUse use = estimate_part(model, training, form, {.stage = stage, .stages = form.stages});
    if (stage == 0 || use.total() > most.total()) most = use;
  }
  return most;
}

std::optional<int64_t> largest_batch_size(const ModelConfig& model, TrainingConfig training, const ActivationForm& form,
                                          double bytes) {
  const auto fits = [&](int64_t batch_size) {
    training.batch_size = batch_size;
    return estimate_memory(model, training, form).total() <= bytes;
  };
  if (!fits(1)) return std::nullopt;
  int64_t low = 1, high = 2;  // fits(low), and in the end not fits(high)
  while (fits(high)) low = high, high *= 2;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace gpt::plan
