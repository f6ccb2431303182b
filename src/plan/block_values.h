// How ZeRO 2 and 3 cut a flat buffer, for the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt::plan {

// Of the values of each segment of divided gradients, as parallel::segment_ends() has them.
std::vector<int64_t> segment_lengths(int64_t stage, const std::vector<ParameterRow>& rows, const FlatLayout& layout,
                                     bool is_of_stage);

// How many values of a flat buffer lie in blocks, in the longest of them, and in all vectors of normalizations.
struct BlockValues {
  int64_t blocks = 0, longest = 0, norms = 0, layers = 0;
};
BlockValues block_values(const std::vector<ParameterRow>& rows, const FlatLayout& layout);

}  // namespace gpt::plan
