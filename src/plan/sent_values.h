// Which values the processes of a run send, how large they are, and how ZeRO 2 and 3 cut a flat buffer, for the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/model/tensor_parallel.h"

namespace gpt::plan {

// Rows of a stage, in its process with the largest part; rows of the process with the largest part of all; how many values are trained.
std::vector<layout::ParameterRow> rows_of_stage(const UpdateConfig& config, int64_t stage);
std::vector<layout::ParameterRow> rows_of_process(const UpdateConfig& config);
double trained_values(const std::vector<layout::ParameterRow>& rows);

int64_t tokens_at_once(const UpdateConfig& config);
// As Precision says once dtype is resolved.
model::StreamBytes bytes_of_stream(const UpdateConfig& config, bool end_to_end);
// What a process sends to the other ones of its stage for a micro-batch, and of a micro-batch's activations to its neighbour in the next one.
model::TensorSums tensor_sums_of_stage(const UpdateConfig& config, bool end_to_end, int64_t stage);
double bytes_between_stages(const UpdateConfig& config, bool end_to_end);

// Whether a stage sends the one before the gradients of what it has got: something before it is trained.
bool passes_gradients_on(const UpdateConfig& config, int64_t stage);
// Whether gradients travel in fewer bits than they have.
bool narrows_gradients(const UpdateConfig& config, bool end_to_end);
// Bytes of the gradients of a table that the first stage and the last one have and train, and add up: of each lane, or with ZeRO 2 of a
// process's part.
double bytes_of_tied_table(const UpdateConfig& config, bool end_to_end);
// Bytes of a gradient as it travels; of a weight as it is kept, and as a model computes with it that keeps no more of it than that.
double bytes_of_sent_gradient(const UpdateConfig& config, bool end_to_end);
double bytes_of_kept_weight(const UpdateConfig& config);
double bytes_of_computing_weight(bool end_to_end);

// How many values each segment of divided gradients has, as parallel::segment_ends() has them.
std::vector<int64_t> segment_lengths(int64_t stage, const std::vector<layout::ParameterRow>& rows,
                                     const layout::FlatLayout& layout, bool is_of_stage);

// How many values of a flat buffer lie in blocks, in the longest of them, and in all vectors of normalizations.
struct BlockValues {
  int64_t blocks = 0, longest = 0, norms = 0, layers = 0;
};
BlockValues block_values(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout);

}  // namespace gpt::plan
