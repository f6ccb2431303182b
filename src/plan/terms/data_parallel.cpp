// Data parallelism: gradients that are summed, in lanes, and what ZeRO divides of gradients, weights and what is sent.
#include <vector>

#include "gpt/layout/layer_ends.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/pipeline_schedule.h"
#include "plan/sent_values.h"
#include "terms.h"

namespace gpt::plan::terms {
namespace {

using ops::kFloatBytes;

// Gradients with ZeRO 2 and 3: the sums, and those segments that are there at the same time: one that is filled, the one before, which is
// on its way, and a tied table, which the head begins and the embedding, or of stages nobody, completes.
double divided_gradients(const RunPart& run) {
  const ActivationForm& form = run.form;
  const std::vector<int64_t> lengths =
      segment_lengths(form.weight_parts > 1 ? 3 : 2, run.rows, run.layout, /*is_of_stage=*/form.stages > 1);
  const auto table = layout::tied_row(run.rows);
  const bool is_tied = run.part.is_last_stage() && table && run.rows[*table].is_trained;
  const size_t last = lengths.size() - 1;
  int64_t most = lengths[last];
  for (size_t i = 0; i < last; ++i)
    most = std::max(most, lengths[i] + lengths[i + 1] + (is_tied && i + 1 < last ? lengths[last] : 0));
  const double sums = form.gradient_lanes == 1 ? 1 / static_cast<double>(form.gradient_parts)
                                               : static_cast<double>(form.gradient_lanes) / 2;
  return static_cast<double>(run.layout.trained_size) * sums * kFloatBytes +
         static_cast<double>(most) * bytes_of(run.gradient);
}

// Weights with ZeRO 3, where all are trained: a part of them as they are kept; as the model computes with them what lies outside blocks,
// and two blocks; and beside copies the vectors that are read in float32.
double divided_weights(const RunPart& run) {
  const BlockValues values = block_values(run.rows, run.layout);
  const auto all = static_cast<double>(run.layout.size), of_blocks = static_cast<double>(values.blocks),
             share = 1 / static_cast<double>(run.form.weight_parts);
  const double kept = bytes_of(device::kept_weight_type(run.training.precision)),
               computed = bytes_of(run.form.compute_type);
  const bool has_copies = kept != computed;
  return (has_copies ? all : of_blocks) * share * kept +
         (all - of_blocks + 2 * static_cast<double>(values.longest)) * computed +
         (has_copies ? static_cast<double>(values.norms) * kept : 0);
}

void add_divided(const RunPart& run, MemoryTerms& sum) {
  if (run.form.weight_parts > 1) sum.use.weights += divided_weights(run);
  if (run.form.gradient_parts > 1) sum.use.gradients += divided_gradients(run);
}

// How often the weights of a stage's blocks come together in an update with ZeRO 3, one block as once: those of each for each forward and
// backward pass, unless they are there still, as the last one's where a backward pass follows a forward pass, and the first one's where it is
// the other way round.
double gathered_blocks(const Sender& sender, int64_t layers) {
  if (layers == 1) return 1;
  const int64_t rounds = sender.rounds(),
                ahead = parallel::most_in_flight(sender.stage, sender.config.distributed.pipeline_parallel, rounds);
  return static_cast<double>(2 * rounds * (layers - 1) + 2 * ahead - 1);
}

// What a process sends of weights: also what lies outside blocks, once; and vectors that are read in float32, as a sum.
double gathered_bytes(const Sender& sender) {
  const auto& [config, end_to_end, processes, stage] = sender;
  const std::vector<layout::ParameterRow> rows = rows_of_stage(config, stage);
  const layout::FlatLayout layout = layout::flat_layout(rows);
  const BlockValues values = block_values(rows, layout);
  const double of_blocks = gathered_blocks(sender, values.layers) * static_cast<double>(values.blocks) /
                           static_cast<double>(values.layers),
               outside = static_cast<double>(layout.size - values.blocks), size = bytes_of_computing_weight(end_to_end);
  return distributed::bytes_sent_by_sum((of_blocks + outside) * size, processes) / 2 +
         (size == bytes_of_kept_weight(config)
              ? 0
              : distributed::bytes_sent_by_sum(static_cast<double>(values.norms) * kFloatBytes, processes));
}

// To the processes that have the same stage.
double sent_for_gradients(const Sender& sender) {
  const auto& [config, end_to_end, processes, stage] = sender;
  const double values = trained_values(rows_of_stage(config, stage)),
               sums = distributed::bytes_sent_by_sum(values * bytes_of_sent_gradient(config, end_to_end), processes);
  if (config.distributed.zero == 0) return sums;
  // Instead of the sums it sends values back, and norms of blocks.
  const int64_t rounds = config.distributed.zero > 1 ? sender.rounds() : 1;
  const double sent_values = config.distributed.zero > 2
                                 ? gathered_bytes(sender)
                                 : distributed::bytes_sent_by_sum(values * bytes_of_kept_weight(config), processes) / 2;
  return sums / 2 * static_cast<double>(rounds) + sent_values +
         distributed::bytes_sent_by_sum(values / layout::kParameterAlignment * sizeof(float), processes);
}

// Buffers for the longest of what is summed at a time, and of what is gathered then, in stretches; and further lanes.
double memory_of_gradient_sums(const Sender& sender) {
  const auto& [config, end_to_end, processes, stage] = sender;
  const int64_t zero = config.distributed.zero;
  const bool divides_gradients = zero > 1 && processes > 1;
  const int64_t lanes = divides_gradients ? 1 : parallel::lanes_of_each(config.distributed.lanes, processes);
  const std::vector<layout::ParameterRow> rows = rows_of_process(config);
  const at::ScalarType gradient = device::gradient_type(config.training, end_to_end);
  const double further_lanes = static_cast<double>(lanes - 1) * trained_values(rows) * bytes_of(gradient);
  if (processes == 1) return further_lanes;
  const layout::FlatLayout layout = layout::flat_layout(rows);
  int64_t longest = layout.trained_size;
  if (divides_gradients) {
    const std::vector<int64_t> lengths = segment_lengths(zero, rows, layout, config.distributed.pipeline_parallel > 1);
    longest = *std::max_element(lengths.begin(), lengths.end());
  }
  const bool is_converted = narrows_gradients(config, end_to_end), is_narrow = is_converted || gradient != at::kFloat;
  const double of_value = is_narrow ? 2 : kFloatBytes;
  auto stretch = static_cast<double>(parallel::stretch_values(layout.trained_size, processes));
  if (zero > 0 && config.training.optimizer.has_muon())  // what a matrix's owner gets of all
    stretch =
        std::max(stretch, static_cast<double>(processes * distributed::owned_stretch_bytes(processes)) / of_value);
  const double sums =
      distributed::memory_of_sum(static_cast<double>(longest) * of_value, stretch * of_value, is_converted, is_narrow);
  if (zero == 0) return further_lanes + sums;
  const double gathered = static_cast<double>(zero > 2 ? longest : layout.trained_size),
               of_gathered = zero > 2 ? bytes_of_computing_weight(end_to_end) : bytes_of_kept_weight(config);
  return further_lanes + sums + distributed::memory_of_gather(gathered * of_gathered, stretch * of_gathered, processes);
}

}  // namespace

Term data_parallel() {
  return {.memory = add_divided, .sent = sent_for_gradients, .sending_memory = memory_of_gradient_sums};
}

}  // namespace gpt::plan::terms
