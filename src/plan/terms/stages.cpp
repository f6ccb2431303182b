// Pipeline parallelism: activations on their way between stages, and a table that the first stage and the last one share.
#include "gpt/layout/tuning.h"
#include "plan/sent_values.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

// Activations (B, T, C), or own rows of them, that a stage has besides: what it gives of each micro-batch in flight, and the gradient that
// comes back; what arrives for the next turn, and the gradient that goes back.
void add_travelling_activations(const RunPart& run, MemoryTerms& sum) {
  const double behind = run.part.is_last_stage() ? 0 : run.in_flight + (run.layers > 0 ? 1 : 0),
               before = run.part.is_first_stage() ? 0 : 1 + (run.passes_gradients_on ? 1 : 0);
  sum.use.activations += run.tokens * (behind + before) * run.bytes.own_rows();
}

// What a stage sends to others: the activations of each micro-batch forward and their gradients back, the tied table's gradient, and at the
// end the norm of each block of its part of all stages, and the loss.
double sent_between_stages(const Sender& sender) {
  const auto& [config, end_to_end, processes, stage] = sender;
  const int64_t stages = config.distributed.pipeline_parallel;
  if (stages == 1) return 0;
  const bool is_first = stage == 0, is_last = stage == stages - 1;
  const ModelConfig part = layout::largest_part(config.model, config.distributed.tensor_parallel);
  const double activations = bytes_between_stages(config, end_to_end),
               blocks =
                   trained_values(layout::parameter_table(part, config.training.tuning)) / layout::kParameterAlignment +
                   1;
  return static_cast<double>(sender.rounds()) * activations *
             ((plan::passes_gradients_on(config, stage) ? 1 : 0) + (is_last ? 0 : 1)) +
         (is_first || is_last ? distributed::bytes_sent_by_sum(bytes_of_tied_table(config, end_to_end), 2) : 0) +
         distributed::bytes_sent_by_sum(blocks * sizeof(float), stages);
}

double memory_of_table_sum(const Sender& sender) {
  return distributed::memory_of_sum(bytes_of_tied_table(sender.config, sender.end_to_end), distributed::kStretchBytes,
                                    narrows_gradients(sender.config, sender.end_to_end), /*is_narrow=*/false);
}

}  // namespace

Term stages() {
  return {.memory = add_travelling_activations, .sent = sent_between_stages, .sending_memory = memory_of_table_sum};
}

}  // namespace gpt::plan::terms
