#include "gpt/layout/layer_ends.h"

#include <algorithm>

#include "gpt/layout/alignment.h"

namespace gpt::layout {

std::vector<int64_t> layer_ends(const std::vector<ParameterRow>& rows, const FlatLayout& layout) {
  std::vector<int64_t> ends;
  bool has_end = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].layer < 0) continue;  // the embeddings, which come last
    has_end = has_end || rows[i].role == ParameterRole::final_norm || rows[i].role == ParameterRole::head;
    ends.resize(std::max(ends.size(), static_cast<size_t>(rows[i].layer) + 1));
    int64_t& end = ends[static_cast<size_t>(rows[i].layer)];
    if (rows[i].is_trained) end = std::max(end, aligned_end(layout.offsets[i] + rows[i].count()));
  }
  if (!has_end) ends.push_back(0);
  for (size_t layer = ends.size(); layer-- > 1;) ends[layer - 1] = std::max(ends[layer - 1], ends[layer]);
  return ends;
}

}  // namespace gpt::layout
