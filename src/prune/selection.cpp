#include "gpt/prune/selection.h"

#include <algorithm>
#include <numeric>

namespace gpt::prune {
namespace {

// The indices of all but the `removed` smallest values, ascending. Of equal values the first stay.
std::vector<int64_t> largest(const std::vector<double>& values, int64_t removed) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(values.size() - static_cast<size_t>(removed));
  std::sort(order.begin(), order.end());
  return order;
}

void keep_whole_groups(KeptLayer& kept, const std::vector<double>& heads, int64_t removed_groups, int64_t kv,
                       int64_t group) {
  std::vector<double> groups(static_cast<size_t>(kv));
  for (size_t head = 0; head < heads.size(); ++head) groups[head / static_cast<size_t>(group)] += heads[head];
  kept.kv_heads = largest(groups, removed_groups);
  for (const int64_t of : kept.kv_heads)
    for (int64_t i = 0; i < group; ++i) kept.heads.push_back(of * group + i);
}

void keep_within_groups(KeptLayer& kept, const std::vector<double>& heads, int64_t removed_of_group, int64_t kv,
                        int64_t group) {
  for (int64_t of = 0; of < kv; ++of) {
    kept.kv_heads.push_back(of);
    const auto begin = heads.begin() + of * group;
    for (const int64_t i : largest({begin, begin + group}, removed_of_group)) kept.heads.push_back(of * group + i);
  }
}

}  // namespace

std::vector<KeptLayer> most_important(const Importance& importance, const Removal& removal, const ModelConfig& model) {
  const int64_t kv = model.kv_heads(), group = model.heads() / kv;
  std::vector<KeptLayer> layers;
  for (const int64_t layer : largest(importance.layers, removal.layers)) {
    const auto i = static_cast<size_t>(layer);
    KeptLayer& kept = layers.emplace_back(KeptLayer{layer, largest(importance.neurons[i], removal.neurons), {}, {}});
    if (removal.heads % group == 0) {
      keep_whole_groups(kept, importance.heads[i], removal.heads / group, kv, group);
    } else {
      keep_within_groups(kept, importance.heads[i], removal.heads / kv, kv, group);
    }
  }
  return layers;
}

}  // namespace gpt::prune
