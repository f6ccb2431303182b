// The kernel that rotates and packs heads, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and
// how it is launched.
#pragma once

#include <algorithm>

#include "gpt/ops/rotary.h"
#include "launch.cuh"

namespace gpt::ops::cuda {

// `count` heads of each token; strides in elements.
template <class T>
struct StridedHeads {
  int64_t count = 0, of_batch = 0, of_position = 0, of_head = 0;
  const T* data = nullptr;
};

template <class T>
struct JoinedHeads {
  int64_t positions, D, stride;  // of `packed`, from token to token
  float direction;               // 1 rotates forward, -1 back
  const float *cos, *sin;        // (positions, D / 2); null: nothing is rotated
  StridedHeads<T> q, k, v;
  T* packed;
};

inline constexpr unsigned kHeadThreads = 256;

// A block does a token, a thread groups of both halves of a head, which are rotated together. What is packed may lie where it came
// from.
template <bool is_whole, class T>
__global__ void __launch_bounds__(kHeadThreads) join_heads_kernel(JoinedHeads<T> of) {
  const int64_t token = blockIdx.x, batch = token / of.positions, position = token - batch * of.positions;
  const int D = static_cast<int>(of.D), half = (D + 1) / 2, groups = (half + kGroup - 1) / kGroup,
            first_k = static_cast<int>(of.q.count), first_v = first_k + static_cast<int>(of.k.count),
            heads = first_v + static_cast<int>(of.v.count);
  for (int i = static_cast<int>(threadIdx.x); i < heads * groups; i += static_cast<int>(blockDim.x)) {
    const int head = i / groups, begin = (i - head * groups) * kGroup, count = half - begin,
              count_of_second = D - half - begin;
    const StridedHeads<T> from = head < first_k ? of.q : head < first_v ? of.k : of.v;
    const int first = head < first_k ? 0 : head < first_v ? first_k : first_v;
    const T* const x =
        from.data + batch * from.of_batch + position * from.of_position + (head - first) * from.of_head + begin;
    Group one = load<is_whole>(x, count), two = load<is_whole>(x + half, count_of_second);
    if (of.cos && head < first_v) {
      const Group cos = load<is_whole>(of.cos + position * half + begin, count),
                  sin = load<is_whole>(of.sin + position * half + begin, count);
      for (int k = 0; k < kGroup; ++k) {
        const float before = one.values[k], turn = of.direction * sin.values[k];
        one.values[k] = before * cos.values[k] - two.values[k] * turn;
        two.values[k] = two.values[k] * cos.values[k] + before * turn;
      }
    }
    T* const y = of.packed + token * of.stride + int64_t{head} * D + begin;
    store<is_whole>(one, y, count);
    store<is_whole>(two, y + half, count_of_second);
  }
}

template <class T>
StridedHeads<T> strided_heads(const at::Tensor& x) {
  if (!x.defined()) return {};
  return {x.size(2), x.stride(0), x.stride(1), x.stride(2), x.const_data_ptr<T>()};
}

// Whether all groups are aligned of heads that begin at aligned places.
template <class T>
bool are_aligned(const StridedHeads<T>& heads) {
  return are_aligned(heads.data) && (heads.of_batch | heads.of_position | heads.of_head) % kGroup == 0;
}

// As cpu::join_heads().
template <class Launch>
void join_heads(const Launch& launch, const RotaryTables& rotary, int direction, const at::Tensor& q,
                const at::Tensor& k, const at::Tensor& v, const at::Tensor& packed) {
  const int64_t tokens = packed.size(0) * packed.size(1), heads = packed.size(2), D = packed.size(3),
                groups = heads * groups_of((D + 1) / 2);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(kHeadThreads, (groups + 31) / 32 * 32));
  with_type(packed.scalar_type(), [&]<class T>() {
    const JoinedHeads<T> of{.positions = packed.size(1),
                            .D = D,
                            .stride = packed.stride(1),
                            .direction = static_cast<float>(direction),
                            .cos = read<float>(rotary.cos),
                            .sin = read<float>(rotary.sin),
                            .q = strided_heads<T>(q),
                            .k = strided_heads<T>(k),
                            .v = strided_heads<T>(v),
                            .packed = write<T>(packed)};
    const bool whole = D % (2 * kGroup) == 0 && of.stride % kGroup == 0 && are_aligned(of.q) && are_aligned(of.k) &&
                       are_aligned(of.v) && are_aligned(of.packed, of.cos, of.sin);
    launch(whole ? join_heads_kernel<true, T> : join_heads_kernel<false, T>, tokens, threads, of);
  });
}

}  // namespace gpt::ops::cuda
