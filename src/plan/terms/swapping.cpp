// What the first blocks keep waits in the memory of the host: training.swap_activations.
#include "gpt/model/activation_swap.h"
#include "gpt/plan/estimates.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

// How many of the blocks whose activations are kept, which are the last ones, are swapped, as the first ones are. Where it is not known yet
// how many: all.
double swapped_layers(const RunPart& run) {
  const auto layers = static_cast<double>(run.model.n_layer);
  const auto asked = static_cast<double>(run.training.execution.swap_activations.value_or(run.model.n_layer));
  return std::max(0.0, std::min(asked, layers) - (layers - run.layers));
}

void swap_activations(const RunPart& run, MemoryTerms& sum) {
  const double swapped = swapped_layers(run), of_block = run.tokens * run.bytes.kept(run.level());
  sum.use.activations -= std::max(0.0, swapped - model::kSwappedOnDevice) * run.in_flight * of_block;
  sum.use.host += swapped * of_block;
}

void add_swapping_on_card(const CardStep& step, CardTerms& sum) {
  if (step.training.execution.swap_activations == 0) return;
  constexpr double kOutAndIn = 2;
  TrainingConfig unswapped = step.training;
  unswapped.execution.swap_activations = 0;
  sum.swapped += kOutAndIn * (step.host - estimate_memory(step.model, unswapped, step.form).host);
}

}  // namespace

Term swapping() { return {.memory = swap_activations, .card = add_swapping_on_card}; }

}  // namespace gpt::plan::terms
