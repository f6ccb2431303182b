#include "block_values.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "gpt/layout/alignment.h"
#include "gpt/layout/layer_ends.h"
#include "gpt/parallel/division.h"

namespace gpt::plan {

std::vector<int64_t> segment_lengths(int64_t stage, const std::vector<ParameterRow>& rows, const FlatLayout& layout,
                                     bool is_of_stage) {
  std::vector<int64_t> lengths = parallel::segment_ends(stage, rows, layout, is_of_stage);
  std::adjacent_difference(lengths.begin(), lengths.end(), lengths.begin());
  return lengths;
}

BlockValues block_values(const std::vector<ParameterRow>& rows, const FlatLayout& layout) {
  const std::vector<int64_t> ends = layer_ends(rows, layout);
  BlockValues values{.blocks = ends.front() - ends.back()};
  for (size_t layer = 0; layer + 1 < ends.size(); ++layer) {
    const int64_t block = ends[layer] - ends[layer + 1];
    values.longest = std::max(values.longest, block);
    values.layers += block > 0 ? 1 : 0;  // a stage has not those before it
  }
  for (const ParameterRow& row : rows) {
    using enum ParameterRole;
    if (row.role == attention_norm || row.role == mlp_norm || row.role == final_norm)
      values.norms += aligned_end(row.count());
  }
  return values;
}

}  // namespace gpt::plan
