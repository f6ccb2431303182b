// The kernel that rotates and packs heads, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and
// how it is launched.
#pragma once

#include <ATen/ops/empty.h>

#include "gpt/ops/rotary.h"
#include "launch.cuh"
#include "row_sums.cuh"

namespace gpt::ops::cuda {

// `count` heads of each token; strides in elements.
template <class T>
struct StridedHeads {
  int64_t count = 0, of_batch = 0, of_position = 0, of_head = 0;
  const T* data = nullptr;
};

template <class T>
struct JoinedHeads {
  unsigned tokens, positions;  // of which no GPU holds 2^31, and 64 bits take a thread many more instructions to divide
  int64_t D, stride;           // the stride of `packed` is from token to token
  float direction;             // 1 rotates forward, -1 back
  const float *cos, *sin;      // (positions, D / 2); null: nothing is rotated
  StridedHeads<T> q, k, v;
  T* packed;
  unsigned blocks_of_token, parts;  // a part is every `parts`-th token, and has as many blocks as one
  float* sums = nullptr;            // (parts, heads of all, D) of what is packed
};

inline constexpr unsigned kHeadThreads = 256;

// A thread does groups of both halves of a head, which are rotated together, of every token of a part: one, unless they are summed.
// What is packed may lie where it came from.
template <bool is_whole, bool is_summed, class T>
__global__ void __launch_bounds__(kHeadThreads) join_heads_kernel(JoinedHeads<T> of) {
  const int D = static_cast<int>(of.D), half = (D + 1) / 2, groups = (half + kGroup - 1) / kGroup,
            first_k = static_cast<int>(of.q.count), first_v = first_k + static_cast<int>(of.k.count),
            heads = first_v + static_cast<int>(of.v.count);
  const unsigned part = blockIdx.x / of.blocks_of_token;
  const int place = static_cast<int>((blockIdx.x - part * of.blocks_of_token) * blockDim.x + threadIdx.x);
  if (place >= heads * groups) return;
  const int head = place / groups, begin = (place - head * groups) * kGroup, count = half - begin,
            count_of_second = D - half - begin;
  const StridedHeads<T> from = head < first_k ? of.q : head < first_v ? of.k : of.v;
  const int first = head < first_k ? 0 : head < first_v ? first_k : first_v;
  const int64_t column = int64_t{head} * D + begin;
  Group sum_of_one{}, sum_of_two{};
  unsigned token = part;
  do {
    const unsigned batch = token / of.positions, position = token - batch * of.positions;
    const T* const x =
        from.data + batch * from.of_batch + position * from.of_position + (head - first) * from.of_head + begin;
    Group one = load<is_whole>(x, count), two = load<is_whole>(x + half, count_of_second);
    if (of.cos && head < first_v) {
      const int64_t angles = int64_t{position} * half + begin;
      const Group cos = load<is_whole>(of.cos + angles, count), sin = load<is_whole>(of.sin + angles, count);
      for (int k = 0; k < kGroup; ++k) {
        const float before = one.values[k], turn = of.direction * sin.values[k];
        one.values[k] = before * cos.values[k] - two.values[k] * turn;
        two.values[k] = two.values[k] * cos.values[k] + before * turn;
      }
    }
    T* const y = of.packed + token * of.stride + column;
    store<is_whole>(one, y, count);
    store<is_whole>(two, y + half, count_of_second);
    if constexpr (is_summed) add(sum_of_one, one), add(sum_of_two, two);
  } while (is_summed && (token += of.parts) < of.tokens);
  if constexpr (is_summed) {
    float* const sums = of.sums + int64_t{part} * heads * D + column;
    store<is_whole>(sum_of_one, sums, count);
    store<is_whole>(sum_of_two, sums + half, count_of_second);
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

// As cpu::join_heads(), with sums where all groups are whole and aligned.
template <class Launch>
at::Tensor join_heads(const Launch& launch, const RotaryTables& rotary, int direction, const at::Tensor& q,
                      const at::Tensor& k, const at::Tensor& v, const at::Tensor& packed, bool sums_rows) {
  const int64_t tokens = packed.size(0) * packed.size(1), heads = packed.size(2), D = packed.size(3),
                groups = heads * groups_of((D + 1) / 2), blocks = (groups + kHeadThreads - 1) / kHeadThreads,
                warps = (groups + 32 * blocks - 1) / (32 * blocks);
  at::Tensor sums;
  with_type(packed.scalar_type(), [&]<class T>() {
    JoinedHeads<T> of{.tokens = static_cast<unsigned>(tokens),
                      .positions = static_cast<unsigned>(packed.size(1)),
                      .D = D,
                      .stride = packed.stride(1),
                      .direction = static_cast<float>(direction),
                      .cos = read<float>(rotary.cos),
                      .sin = read<float>(rotary.sin),
                      .q = strided_heads<T>(q),
                      .k = strided_heads<T>(k),
                      .v = strided_heads<T>(v),
                      .packed = write<T>(packed),
                      .blocks_of_token = static_cast<unsigned>(blocks),
                      .parts = static_cast<unsigned>(tokens)};
    const bool whole = D % (2 * kGroup) == 0 && of.stride % kGroup == 0 && are_aligned(of.q) && are_aligned(of.k) &&
                       are_aligned(of.v) && are_aligned(of.packed, of.cos, of.sin);
    auto kernel = whole ? join_heads_kernel<true, false, T> : join_heads_kernel<false, false, T>;
    if (sums_rows && whole) {
      const int64_t parts = row_parts(tokens, blocks, launch.multiprocessors());
      sums = at::empty({parts, heads * D}, packed.options().dtype(at::kFloat));
      of.parts = static_cast<unsigned>(parts), of.sums = write<float>(sums);
      kernel = join_heads_kernel<true, true, T>;
    }
    launch(kernel, of.parts * blocks, static_cast<unsigned>(32 * warps), of);
  });
  return sums;
}

}  // namespace gpt::ops::cuda
