#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/kernels.h"
#include "ops/verdict_kernel.h"

namespace gpt::ops::cpu {
namespace {

float median_of(std::vector<float>& values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 == 1 ? *middle : middle_of(*std::max_element(values.begin(), middle), *middle);
}

Level level_of(const float* values, int64_t count) {
  std::vector<float> copy(values, values + count);
  const float median = median_of(copy);
  for (float& value : copy) value = std::abs(value - median);
  return {.median = median, .distance = median_of(copy)};
}

}  // namespace

void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts,
           const SpikeWatch& watch) {
  const VerdictScalars of = scalars_of(evidence, max_norm, verdict, counts, watch);
  if (!has_levels(of)) return ops::judge(of, /*is_compared=*/false, {});
  const Levels levels{level_of(of.window, of.window_size), level_of(of.window + of.window_size, of.window_size)};
  ops::judge(of, /*is_compared=*/true, levels);
}

}  // namespace gpt::ops::cpu
