// The kernels that normalize, rotate and pack heads, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and
// how they are launched.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include "launch.cuh"
#include "ops/head_pass.h"
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

// Groups of both halves of a head, by the angles of their position.
template <bool is_whole, class T>
__device__ void turn(const JoinedHeads<T>& of, int64_t angles, int count, Group& one, Group& two) {
  const Group cos = load<is_whole>(of.cos + angles, count), sin = load<is_whole>(of.sin + angles, count);
  for (int k = 0; k < kGroup; ++k) {
    const float before = one.values[k], turned = of.direction * sin.values[k];
    one.values[k] = before * cos.values[k] - two.values[k] * turned;
    two.values[k] = two.values[k] * cos.values[k] + before * turned;
  }
}

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
    if (of.cos && head < first_v) turn<is_whole>(of, int64_t{position} * half + begin, count, one, two);
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

// What kernels take for heads that are normalized before they are rotated, and for the gradients of both.
template <class T>
struct NormedHeads {
  JoinedHeads<T> heads;
  float eps;
  const float *query_weight, *key_weight;  // (D)
  const T* raw;                            // what was normalized, where gradients are packed
  int64_t raw_stride;                      // from token to token
  float* weight_sums;                      // (parts, heads of queries and keys, D)
};

// A head's groups lie in so many neighbouring lanes of a warp, of which the last ones may have nothing to do.
inline unsigned lanes_of_head(int64_t groups) {
  unsigned lanes = 1;
  while (lanes < groups) lanes *= 2;
  return lanes;
}

inline constexpr int64_t kMostNormedHeadDim = 2 * 32 * kGroup;

// The sum over the lanes of a head.
__device__ inline float head_sum(float value, unsigned lanes) {
  for (unsigned i = 1; i < lanes; i *= 2) value += __shfl_xor_sync(0xffffffff, value, i);
  return value;
}

__device__ inline float dot(const Group& a, const Group& b) {
  float sum = 0;
  for (int k = 0; k < kGroup; ++k) sum += a.values[k] * b.values[k];
  return sum;
}

__device__ inline void scale(Group& x, float factor, const Group& factors) {
  for (int k = 0; k < kGroup; ++k) x.values[k] *= factor * factors.values[k];
}

// Turns the gradient of n w, with n = x r and r the reciprocal root of the mean of squares, into that of x, and adds to the gradient of w.
struct NormGradient {
  float reciprocal, along;  // r, and the sum of g n over the head divided by D, with g the gradient of n

  __device__ static float add_to_weight(Group& gradient, const Group& n, const Group& weight, Group& of_weight) {
    float along = 0;
    for (int k = 0; k < kGroup; ++k) {
      of_weight.values[k] += gradient.values[k] * n.values[k];
      gradient.values[k] *= weight.values[k];
      along += gradient.values[k] * n.values[k];
    }
    return along;
  }
  __device__ void apply(Group& g, const Group& n) const {
    for (int k = 0; k < kGroup; ++k) g.values[k] = (g.values[k] - n.values[k] * along) * reciprocal;
  }
};

// As join_heads_kernel(), with the same place for all groups of a head at once, whose sums its lanes add up. Direction 1
// normalizes, -1 takes gradients back.
template <bool is_whole, int direction, class T>
__global__ void __launch_bounds__(kHeadThreads) normed_heads_kernel(NormedHeads<T> normed, unsigned lanes) {
  constexpr bool is_backward = direction < 0;
  const JoinedHeads<T>& of = normed.heads;
  const int D = static_cast<int>(of.D), half = (D + 1) / 2, groups = (half + kGroup - 1) / kGroup,
            first_k = static_cast<int>(of.q.count), first_v = first_k + static_cast<int>(of.k.count),
            heads = first_v + static_cast<int>(of.v.count);
  const unsigned part = blockIdx.x / of.blocks_of_token,
                 place = (blockIdx.x - part * of.blocks_of_token) * blockDim.x + threadIdx.x;
  const int head = static_cast<int>(place / lanes), begin = static_cast<int>(place % lanes) * kGroup,
            count = half - begin, count_of_second = D - half - begin;
  const bool is_there = head < heads && begin < groups * kGroup, is_normed = is_there && head < first_v;
  const StridedHeads<T> from = head < first_k ? of.q : head < first_v ? of.k : of.v;
  const int first = head < first_k ? 0 : head < first_v ? first_k : first_v;
  const int64_t column = int64_t{head} * D + begin;
  Group weight{}, weight_of_second{}, of_weight{}, of_second_weight{};
  if (is_normed) {
    const float* const weights = (head < first_k ? normed.query_weight : normed.key_weight) + begin;
    weight = load<is_whole>(weights, count), weight_of_second = load<is_whole>(weights + half, count_of_second);
  }
  for (unsigned token = part; token < of.tokens; token += of.parts) {
    const unsigned batch = token / of.positions, position = token - batch * of.positions;
    Group one{}, two{}, n{}, n_of_second{};
    if (is_there) {
      const T* const x =
          from.data + batch * from.of_batch + position * from.of_position + (head - first) * from.of_head + begin;
      one = load<is_whole>(x, count), two = load<is_whole>(x + half, count_of_second);
    }
    const int64_t angles = int64_t{position} * half + begin;
    if constexpr (is_backward) {
      if (is_normed) {
        if (of.cos) turn<is_whole>(of, angles, count, one, two);
        const T* const raw = normed.raw + token * normed.raw_stride + column;
        n = load<is_whole>(raw, count), n_of_second = load<is_whole>(raw + half, count_of_second);
      }
    } else {
      n = one, n_of_second = two;
    }
    // All lanes of a warp take part in its sums.
    const float squares = head_sum(dot(n, n) + dot(n_of_second, n_of_second), lanes),
                reciprocal = 1 / sqrtf(squares / static_cast<float>(D) + normed.eps);
    if constexpr (is_backward) {
      for (int k = 0; k < kGroup; ++k) n.values[k] *= reciprocal, n_of_second.values[k] *= reciprocal;
      Group g = one, g_of_second = two;
      const float along =
          head_sum(NormGradient::add_to_weight(g, n, weight, of_weight) +
                       NormGradient::add_to_weight(g_of_second, n_of_second, weight_of_second, of_second_weight),
                   lanes);
      if (is_normed) {
        const NormGradient gradient{reciprocal, along / static_cast<float>(D)};
        one = g, two = g_of_second;
        gradient.apply(one, n), gradient.apply(two, n_of_second);
      }
    } else if (is_normed) {
      scale(one, reciprocal, weight), scale(two, reciprocal, weight_of_second);
      if (of.cos) turn<is_whole>(of, angles, count, one, two);
    }
    if (is_there) {
      T* const y = of.packed + token * of.stride + column;
      store<is_whole>(one, y, count), store<is_whole>(two, y + half, count_of_second);
    }
  }
  if constexpr (is_backward) {
    if (!is_normed) return;
    float* const sums = normed.weight_sums + int64_t{part} * first_v * D + column;
    store<is_whole>(of_weight, sums, count), store<is_whole>(of_second_weight, sums + half, count_of_second);
  }
}

// Fills in what of the norms is not in the heads, and launches. Returns the gradients of the weights, where it packs gradients.
template <class T, class Launch>
at::Tensor join_normed_heads(const Launch& launch, const HeadPass& pass, JoinedHeads<T> heads, bool whole) {
  TORCH_CHECK(heads.D <= kMostNormedHeadDim, "heads: at most ", kMostNormedHeadDim,
              " values of one are normalized, got ", heads.D);
  const auto count = heads.q.count + heads.k.count + heads.v.count, normed = heads.q.count + heads.k.count;
  const unsigned lanes = lanes_of_head(groups_of((heads.D + 1) / 2));
  const int64_t threads = count * lanes, blocks = (threads + kHeadThreads - 1) / kHeadThreads,
                warps = (threads + 32 * blocks - 1) / (32 * blocks);
  NormedHeads<T> of{.heads = heads,
                    .eps = static_cast<float>(pass.norms.eps),
                    .query_weight = read(pass.norms.query),
                    .key_weight = read(pass.norms.key),
                    .raw = read<T>(pass.raw),
                    .raw_stride = pass.raw.defined() ? pass.raw.stride(1) : 0,
                    .weight_sums = nullptr};
  of.heads.blocks_of_token = static_cast<unsigned>(blocks);
  whole = whole && are_aligned(of.query_weight, of.key_weight, of.raw) && of.raw_stride % kGroup == 0;
  const bool is_backward = pass.direction < 0;
  at::Tensor sums;
  if (is_backward) {
    of.heads.parts = static_cast<unsigned>(row_parts(heads.tokens, blocks, launch.multiprocessors()));
    sums = at::empty({of.heads.parts, normed, heads.D}, pass.raw.options().dtype(at::kFloat));
    of.weight_sums = write<float>(sums);
  }
  const auto kernel = is_backward ? whole ? normed_heads_kernel<true, -1, T> : normed_heads_kernel<false, -1, T>
                      : whole     ? normed_heads_kernel<true, 1, T>
                                  : normed_heads_kernel<false, 1, T>;
  launch(kernel, of.heads.parts * blocks, static_cast<unsigned>(32 * warps), of, lanes);
  if (!is_backward) return {};
  return at::stack({sums.narrow(1, 0, heads.q.count).sum(1), sums.narrow(1, heads.q.count, heads.k.count).sum(1)}, 1);
}

// As cpu::join_heads(), with sums of rows where all groups are whole and aligned, and nothing is normalized.
template <class Launch>
HeadSums join_heads(const Launch& launch, const HeadPass& pass, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v, const at::Tensor& packed) {
  const int64_t tokens = packed.size(0) * packed.size(1), heads = packed.size(2), D = packed.size(3),
                groups = heads * groups_of((D + 1) / 2), blocks = (groups + kHeadThreads - 1) / kHeadThreads,
                warps = (groups + 32 * blocks - 1) / (32 * blocks);
  HeadSums sums;
  with_type(packed.scalar_type(), [&]<class T>() {
    JoinedHeads<T> of{.tokens = static_cast<unsigned>(tokens),
                      .positions = static_cast<unsigned>(packed.size(1)),
                      .D = D,
                      .stride = packed.stride(1),
                      .direction = static_cast<float>(pass.direction),
                      .cos = read<float>(pass.rotary.cos),
                      .sin = read<float>(pass.rotary.sin),
                      .q = strided_heads<T>(q),
                      .k = strided_heads<T>(k),
                      .v = strided_heads<T>(v),
                      .packed = write<T>(packed),
                      .blocks_of_token = static_cast<unsigned>(blocks),
                      .parts = static_cast<unsigned>(tokens)};
    const bool whole = D % (2 * kGroup) == 0 && of.stride % kGroup == 0 && are_aligned(of.q) && are_aligned(of.k) &&
                       are_aligned(of.v) && are_aligned(of.packed, of.cos, of.sin);
    if (pass.norms.defined()) {
      sums.of_norms = join_normed_heads(launch, pass, of, whole);
      return;
    }
    auto kernel = whole ? join_heads_kernel<true, false, T> : join_heads_kernel<false, false, T>;
    if (pass.sums_rows && whole) {
      const int64_t parts = row_parts(tokens, blocks, launch.multiprocessors());
      sums.of_rows = at::empty({parts, heads * D}, packed.options().dtype(at::kFloat));
      of.parts = static_cast<unsigned>(parts), of.sums = write<float>(sums.of_rows);
      kernel = join_heads_kernel<true, true, T>;
    }
    launch(kernel, of.parts * blocks, static_cast<unsigned>(32 * warps), of);
  });
  return sums;
}

}  // namespace gpt::ops::cuda
