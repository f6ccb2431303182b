#include <algorithm>
#include <cstdint>

#include "ops/kernels.h"

namespace gpt::ops::cpu {
namespace {

// Single-threaded: a batch is a few hundred kilobytes, and the loader's workers, which also call this, run in parallel.
template <class Id>
void gather(int64_t* inputs, int64_t* targets, const Id* tokens, const int64_t* starts, int64_t B, int64_t T) {
  for (int64_t b = 0; b < B; ++b) {
    const Id* window = tokens + starts[b];
    std::copy(window, window + T, inputs + b * T);
    std::copy(window + 1, window + T + 1, targets + b * T);
  }
}

}  // namespace

void token_gather(const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                  const at::Tensor& starts) {
  const int64_t B = inputs.size(0), T = inputs.size(1), N = tokens.size(0);
  const auto* start = starts.const_data_ptr<int64_t>();
  for (int64_t b = 0; b < B; ++b) {
    TORCH_CHECK(start[b] >= 0 && start[b] + T < N, "token_gather: starts[", b, "] is ", start[b], "; a window of ", T,
                " and its target need a start in [0, ", N - T - 1, "] of ", N, " tokens");
  }
  auto* in = inputs.data_ptr<int64_t>();
  auto* target = targets.data_ptr<int64_t>();
  if (tokens.scalar_type() == at::kUInt16) {
    gather(in, target, tokens.const_data_ptr<uint16_t>(), start, B, T);
  } else {
    gather(in, target, tokens.const_data_ptr<int32_t>(), start, B, T);
  }
}

}  // namespace gpt::ops::cpu
