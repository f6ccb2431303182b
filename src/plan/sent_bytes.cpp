#include "gpt/plan/sent_bytes.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "block_values.h"
#include "gpt/layout/cut.h"
#include "gpt/layout/freeze.h"
#include "gpt/ops/kept_bytes.h"
#include "gpt/parallel/division.h"
#include "gpt/parallel/pipeline_schedule.h"
#include "gpt/plan/estimates.h"
#include "sent_values.h"

namespace gpt::plan {
namespace {

using ops::kFloatBytes;

double trained_values(const std::vector<ParameterRow>& rows) {
  return static_cast<double>(flat_layout(rows).trained_size);
}

// What sums over those that divide the model take: beside what arrives, rows that are arranged for it.
double memory_of_tensor_sums(const Config& config, bool end_to_end) {
  if (config.distributed.tensor_parallel == 1) return 0;
  const double size = bytes_of_stream(config, end_to_end).stream,
               bytes = static_cast<double>(tokens_at_once(config) * config.model.n_embd) * size;
  return bytes + distributed::memory_of_sum(bytes, std::min<double>(bytes, distributed::kStretchBytes),
                                            /*is_converted=*/false,
                                            /*is_narrow=*/size < kFloatBytes);
}

double sent_within_stage(const Config& config, bool end_to_end, int64_t stage) {
  return tensor_sums_of_stage(config, end_to_end, stage).bytes *
         static_cast<double>(
             at::divup(config.training.gradient_accumulation_steps, config.distributed.data_processes()));
}

double gradient_bytes(const Config& config, bool end_to_end, const std::vector<ParameterRow>& rows) {
  return trained_values(rows) * static_cast<double>(c10::elementSize(gradient_type(config.training, end_to_end)));
}

// What a stage sends to others: the activations of each micro-batch forward and their gradients back, the tied table's gradient, and at the
// end the norm of each block of its part of all stages, and the loss.
double sent_between_stages(const Config& config, bool end_to_end, int64_t processes, int64_t stage) {
  const int64_t stages = config.distributed.pipeline_parallel;
  if (stages == 1) return 0;
  const bool is_first = stage == 0, is_last = stage == stages - 1;
  const ModelConfig part = largest_part(config.model, config.distributed.tensor_parallel);
  const auto micro_batches = static_cast<double>(at::divup(config.training.gradient_accumulation_steps, processes));
  const double activations = bytes_between_stages(config, end_to_end),
               blocks = trained_values(parameter_table(part, config.training.freeze)) / kParameterAlignment + 1;
  return micro_batches * activations * ((passes_gradients_on(config, stage) ? 1 : 0) + (is_last ? 0 : 1)) +
         (is_first || is_last ? distributed::bytes_sent_by_sum(bytes_of_tied_table(config, end_to_end), 2) : 0) +
         distributed::bytes_sent_by_sum(blocks * sizeof(float), stages);
}

// How often the weights of a stage's blocks come together in an update with ZeRO 3, one block as once: those of each for each forward and
// backward pass, unless they are there still, as the last one's where a backward pass follows a forward pass, and the first one's where it is
// the other way round.
double gathered_blocks(const Config& config, int64_t stage, int64_t rounds, int64_t layers) {
  if (layers == 1) return 1;
  const int64_t ahead = parallel::most_in_flight(stage, config.distributed.pipeline_parallel, rounds);
  return static_cast<double>(2 * rounds * (layers - 1) + 2 * ahead - 1);
}

// What a process sends of weights: also what lies outside blocks, once; and vectors that are read in float32, as a sum.
double gathered_bytes(const Config& config, bool end_to_end, int64_t processes, int64_t rounds, int64_t stage) {
  const std::vector<ParameterRow> rows = rows_of_stage(config, stage);
  const FlatLayout layout = flat_layout(rows);
  const BlockValues values = block_values(rows, layout);
  const double of_blocks = gathered_blocks(config, stage, rounds, values.layers) * static_cast<double>(values.blocks) /
                           static_cast<double>(values.layers),
               outside = static_cast<double>(layout.size - values.blocks), size = bytes_of_computing_weight(end_to_end);
  return distributed::bytes_sent_by_sum((of_blocks + outside) * size, processes) / 2 +
         (size == bytes_of_kept_weight(config)
              ? 0
              : distributed::bytes_sent_by_sum(static_cast<double>(values.norms) * kFloatBytes, processes));
}

}  // namespace

double exchange_bytes(const Config& config, bool end_to_end, int64_t all_processes) {
  const DistributedConfig& distributed = config.distributed;
  const int64_t processes = all_processes / distributed.model_processes();
  const double of_table = bytes_of_tied_table(config, end_to_end),
               within_model = memory_of_tensor_sums(config, end_to_end) +
                              distributed::memory_of_sum(of_table, distributed::kStretchBytes,
                                                         narrows_gradients(config, end_to_end), /*is_narrow=*/false);
  const bool divides_gradients = distributed.zero > 1 && processes > 1;
  const int64_t lanes = divides_gradients ? 1 : parallel::lanes_of_each(distributed.lanes, processes);
  const std::vector<ParameterRow> rows = rows_of_process(config);
  const double further_lanes = static_cast<double>(lanes - 1) * gradient_bytes(config, end_to_end, rows);
  if (processes == 1) return within_model + further_lanes;
  const FlatLayout layout = flat_layout(rows);
  int64_t longest = layout.trained_size;  // that is summed at a time
  if (divides_gradients) {
    const std::vector<int64_t> lengths =
        segment_lengths(distributed.zero, rows, layout, distributed.pipeline_parallel > 1);
    longest = *std::max_element(lengths.begin(), lengths.end());
  }
  const int64_t gathered = distributed.zero > 2 ? longest : layout.trained_size;  // at a time
  const at::ScalarType gradient = gradient_type(config.training, end_to_end);
  const bool is_converted = narrows_gradients(config, end_to_end), is_narrow = is_converted || gradient != at::kFloat;
  const double of_value = is_narrow ? 2 : kFloatBytes, of_gathered = distributed.zero > 2
                                                                         ? bytes_of_computing_weight(end_to_end)
                                                                         : bytes_of_kept_weight(config);
  auto stretch = static_cast<double>(parallel::stretch_values(layout.trained_size, processes));
  if (distributed.zero > 0 && config.training.optimizer.has_muon())  // what a matrix's owner gets of all
    stretch =
        std::max(stretch, static_cast<double>(processes * distributed::owned_stretch_bytes(processes)) / of_value);
  const double sums =
      distributed::memory_of_sum(static_cast<double>(longest) * of_value, stretch * of_value, is_converted, is_narrow);
  return within_model + further_lanes + sums +
         (distributed.zero == 0 ? 0
                                : distributed::memory_of_gather(static_cast<double>(gathered) * of_gathered,
                                                                stretch * of_gathered, processes));
}

namespace {

// Of a stage, to those that have the same one.
double sent_for_gradients(const Config& config, bool end_to_end, int64_t processes, int64_t stage) {
  const double values = trained_values(rows_of_stage(config, stage)),
               sums = distributed::bytes_sent_by_sum(values * bytes_of_sent_gradient(config, end_to_end), processes);
  if (config.distributed.zero == 0) return sums;
  // Instead of the sums it sends values back, and norms of blocks.
  const int64_t micro_batches = config.training.gradient_accumulation_steps,
                rounds = config.distributed.zero > 1 ? at::divup(micro_batches, processes) : 1;
  const double sent_values = config.distributed.zero > 2
                                 ? gathered_bytes(config, end_to_end, processes, rounds, stage)
                                 : distributed::bytes_sent_by_sum(values * bytes_of_kept_weight(config), processes) / 2;
  return sums / 2 * static_cast<double>(rounds) + sent_values +
         distributed::bytes_sent_by_sum(values / kParameterAlignment * sizeof(float), processes);
}

}  // namespace

double sent_bytes(const Config& config, bool end_to_end, int64_t all_processes) {
  const int64_t processes = all_processes / config.distributed.model_processes();
  double most = 0;
  for (int64_t stage = 0; stage < config.distributed.pipeline_parallel; ++stage)
    most = std::max(most, sent_within_stage(config, end_to_end, stage) +
                              sent_between_stages(config, end_to_end, processes, stage) +
                              sent_for_gradients(config, end_to_end, processes, stage));
  return most;
}

}  // namespace gpt::plan
