#include "sent_values.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gpt/device/precision.h"
#include "gpt/layout/alignment.h"
#include "gpt/layout/cut.h"
#include "gpt/layout/layer_ends.h"
#include "gpt/layout/stages.h"
#include "gpt/layout/tuning.h"
#include "gpt/ops/kept_bytes.h"
#include "gpt/parallel/division.h"

namespace gpt::plan {

using ops::kFloatBytes;

std::vector<layout::ParameterRow> rows_of_stage(const UpdateConfig& config, int64_t stage) {
  const ModelConfig part = layout::largest_part(config.model, config.distributed.tensor_parallel);
  return layout::cut(layout::parameter_table(part, config.training.tuning), part,
                     {.stage = stage, .stages = config.distributed.pipeline_parallel});
}

std::vector<layout::ParameterRow> rows_of_process(const UpdateConfig& config) {
  std::vector<layout::ParameterRow> largest = rows_of_stage(config, 0);
  for (int64_t stage = 1; stage < config.distributed.pipeline_parallel; ++stage)
    if (std::vector<layout::ParameterRow> rows = rows_of_stage(config, stage);
        layout::flat_layout(rows).trained_size > layout::flat_layout(largest).trained_size)
      largest = std::move(rows);
  return largest;
}

double trained_values(const std::vector<layout::ParameterRow>& rows) {
  return static_cast<double>(layout::flat_layout(rows).trained_size);
}

int64_t tokens_at_once(const UpdateConfig& config) { return config.training.batch_size * config.sequence_length(); }

model::StreamBytes bytes_of_stream(const UpdateConfig& config, bool end_to_end) {
  const PrecisionConfig& precision = config.training.precision;
  const bool is_narrow = precision.use_amp && (precision.dtype == Dtype::bfloat16 || precision.dtype == Dtype::float16);
  return {.product = is_narrow || end_to_end ? 2 : kFloatBytes, .stream = end_to_end ? 2 : kFloatBytes};
}

model::TensorSums tensor_sums_of_stage(const UpdateConfig& config, bool end_to_end, int64_t stage) {
  const DistributedConfig& distributed = config.distributed;
  return model::tensor_sums(
      config.model, {.size = distributed.tensor_parallel, .stage = stage, .stages = distributed.pipeline_parallel},
      tokens_at_once(config), bytes_of_stream(config, end_to_end), config.training.execution.gradient_checkpointing);
}

double bytes_between_stages(const UpdateConfig& config, bool end_to_end) {
  const int64_t rows = layout::rows_of_part(tokens_at_once(config), {.size = config.distributed.tensor_parallel});
  return static_cast<double>(rows * config.model.n_embd) * bytes_of_stream(config, end_to_end).stream;
}

bool narrows_gradients(const UpdateConfig& config, bool end_to_end) {
  return config.distributed.reduce_dtype == ReduceDtype::bfloat16 &&
         device::gradient_type(config.training, end_to_end) == at::kFloat;
}

double bytes_of_sent_gradient(const UpdateConfig& config, bool end_to_end) {
  return static_cast<double>(c10::elementSize(device::gradient_type(config.training, end_to_end))) /
         (narrows_gradients(config, end_to_end) ? 2 : 1);
}

double bytes_of_tied_table(const UpdateConfig& config, bool end_to_end) {
  if (config.distributed.pipeline_parallel == 1) return 0;
  const std::vector<layout::ParameterRow> rows = rows_of_stage(config, 0);
  const auto table = layout::tied_row(rows);
  if (!table || !rows[*table].is_trained) return 0;
  const int64_t values = rows[*table].count(), pipelines = config.distributed.data_processes();
  if (config.distributed.zero < 2 || pipelines == 1)
    return static_cast<double>(parallel::lanes_of_each(config.distributed.lanes, pipelines) * values) *
           bytes_of_sent_gradient(config, end_to_end);
  const double of_value = config.distributed.reduce_dtype == ReduceDtype::bfloat16 ? 2 : kFloatBytes;  // of a sum
  return static_cast<double>(values) * of_value / static_cast<double>(pipelines);
}

bool passes_gradients_on(const UpdateConfig& config, int64_t stage) {
  const std::vector<layout::LayerSpan> spans = layout::stages_of(config.model, config.distributed.pipeline_parallel);
  return layout::passes_gradients_on(stage, spans[static_cast<size_t>(stage)],
                                     layout::first_trained_layer(
                                         layout::parameter_table(config.model, config.training.tuning)));
}

double bytes_of_kept_weight(const UpdateConfig& config) {
  return static_cast<double>(c10::elementSize(device::kept_weight_type(config.training.precision)));
}

double bytes_of_computing_weight(bool end_to_end) { return end_to_end ? 2 : kFloatBytes; }

std::vector<int64_t> segment_lengths(int64_t stage, const std::vector<layout::ParameterRow>& rows,
                                     const layout::FlatLayout& layout, bool is_of_stage) {
  std::vector<int64_t> lengths = parallel::segment_ends(stage, rows, layout, is_of_stage);
  std::adjacent_difference(lengths.begin(), lengths.end(), lengths.begin());
  return lengths;
}

BlockValues block_values(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout) {
  const std::vector<int64_t> ends = layout::layer_ends(rows, layout);
  BlockValues values{.blocks = ends.front() - ends.back()};
  for (size_t layer = 0; layer + 1 < ends.size(); ++layer) {
    const int64_t block = ends[layer] - ends[layer + 1];
    values.longest = std::max(values.longest, block);
    values.layers += block > 0 ? 1 : 0;  // a stage has not those before it
  }
  for (const layout::ParameterRow& row : rows) {
    if (layout::is_norm(row.role)) values.norms += layout::aligned_end(row.count());
  }
  return values;
}

}  // namespace gpt::plan
