// The blocks: what they keep from their forward pass to their backward pass, less with gradient checkpointing, and what they compute,
// more with it.
#include "gpt/layout/tuning.h"
#include "gpt/model/recompute.h"
#include "gpt/ops/part.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

// LibTorch's flash attention on a CPU keeps the masks of layers that are trained, or of one that is computed again: one for a window, and
// one for each head and sequence where queries choose.
double masks(const RunPart& run) {
  const ModelConfig& model = run.model;
  if (run.form.own_operators || run.form.cuda || !run.form.fused_attention) return 0;
  int64_t all = 0, most_of_layer = 0;
  for (int64_t layer = std::max<int64_t>(0, layout::first_trained_layer(run.rows)); layer < model.n_layer; ++layer) {
    const int64_t of_layer = model.top_blocks() > 0    ? run.training.batch_size * model.heads()
                             : model.window(layer) > 0 ? 1
                                                       : 0;
    all += of_layer;
    most_of_layer = std::max(most_of_layer, of_layer);
  }
  const auto T = static_cast<double>(model.block_size);
  return static_cast<double>(run.level() == GradientCheckpointing::block ? most_of_layer : all) *
         bytes_of(run.form.compute_type) * T * T;
}

void add_blocks(const RunPart& run, MemoryTerms& sum) {
  const GradientCheckpointing level = run.level();
  sum.use.activations += run.tokens * run.in_flight * run.layers * run.bytes.kept(level) + masks(run);
  sum.block += run.tokens * (run.bytes.backward(level) + run.bytes.recomputed(level));
  const ModelConfig& model = run.model;
  sum.at_product(run.of_weight(std::max(model.hidden(), 3 * model.attention_width())));
  sum.at_product(run.tokens * static_cast<double>(model.hidden()) * run.unrounded());
  sum.passes += run.form.product_workspace;
}

// What follows is done again in the backward pass from a level of gradient checkpointing on.
Work repeated(const OperatorWork::Passes& passes, bool is_done_again) {
  return (is_done_again ? 2 : 1) * passes.forward + passes.backward;
}

Work products(const StepOperators& step, int64_t first_trained, GradientCheckpointing level) {
  Work sum;
  for (const layout::ParameterRow& row : step.rows) {
    const int times = model::times_multiplied(row, level);
    if (times == 0) continue;
    const auto [forward, backward] = step.of.product(row.shape[1], row.shape[0]);
    // Half of the backward pass is for the input, and half for the weight.
    sum = sum + (row.layer < first_trained ? forward : (times - 2) * forward + (row.is_trained ? 1.0 : 0.5) * backward);
  }
  return sum;
}

void add_passes(const StepOperators& step, StepWork& sum) {
  using enum GradientCheckpointing;
  const GradientCheckpointing level = step.training.execution.gradient_checkpointing;
  const int64_t first = layout::first_trained_layer(step.rows), layers = step.model.n_layer;
  const auto only_forward =
                 static_cast<double>(std::max<int64_t>(first, 0)),  // blocks that the backward pass ends before
      others = static_cast<double>(layers) - only_forward;
  const OperatorWork& of = step.of;
  Work attention;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const OperatorWork::Passes passes = of.attention(step.model.visible_share(layer));
    attention = attention + (layer < first ? passes.forward : repeated(passes, level >= block));
  }
  // Those of each block, of which the very first has nothing to add, and the last one.
  const OperatorWork::Passes with_branch = of.norm(/*has_branch=*/true), in_block = of.norms_of_block(),
                             mlp = of.activation();
  const Work norms = of.norm(/*has_branch=*/false).both() + with_branch.both() + only_forward * in_block.forward +
                     others * repeated(in_block, level >= norm) + -1.0 * repeated(with_branch, level >= norm);
  sum.add(ops::part::kNorm, step.micro_steps * norms);
  sum.add(ops::part::kProducts, step.micro_steps * products(step, first, level));
  sum.add(ops::part::kAttention, step.micro_steps * attention);
  sum.add(ops::part::kActivation,
          step.micro_steps * (only_forward * mlp.forward + others * repeated(mlp, level >= activation)));
}

// With the head and the rest of a micro-step. Our own operators do the work of several of LibTorch's.
void add_passes_on_card(const CardStep& step, CardTerms& sum) {
  constexpr double kOwnKernels = 30, kAtenKernels = 60,
                   kOtherKernels = 40;  // of a block forward and backward; of the rest
  // As the products of the blocks are.
  sum.repeated = model::weights_multiplied(step.model, step.training.execution.gradient_checkpointing) /
                 model::weights_multiplied(step.model, GradientCheckpointing::none);
  sum.flops_per_token += sum.repeated * layout::flops_per_token(in_training(step.model, step.training), step.rows);
  const double kernels = step.form.own_operators ? kOwnKernels : kAtenKernels;
  sum.kernels += kernels * static_cast<double>(step.model.n_layer) + kOtherKernels;
}

}  // namespace

Term blocks() { return {.memory = add_blocks, .work = add_passes, .card = add_passes_on_card}; }

}  // namespace gpt::plan::terms
