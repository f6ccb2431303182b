// The kernels of the embedding, compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler, and how they are
// launched.
//
// In the backward pass the tokens are sorted, stably, so that the rows of an id follow each other: a run. Runs are cut where a
// chunk of kChunk tokens ends. What a run has in one chunk a single thread sums for each column; if that is all of the run, it goes
// to the table's gradient, and if not to `parts`, from where a second kernel adds up the parts of each run. So neither a common
// token makes one block sum thousands of rows, nor do two blocks add to the same value.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/macros/Macros.h>

#include <algorithm>

#include "launch.cuh"
#include "row_sums.cuh"
#include "token_sort.cuh"

namespace gpt::ops::cuda {

template <class T>
using EmbeddingRows = ops::EmbeddingRows<T, DropoutMask>;

inline constexpr unsigned kRowThreads = 256;

// A block does a row.
template <bool is_whole, class T>
__global__ void __launch_bounds__(kRowThreads) embedding_kernel(EmbeddingRows<T> of) {
  const int64_t row = blockIdx.x, id = of.ids[row], C = of.C, groups = (C + kGroup - 1) / kGroup;
  CUDA_KERNEL_ASSERT(id >= 0 && id < of.V);
  for (int64_t group = threadIdx.x; group < groups; group += blockDim.x) {
    const int64_t begin = group * kGroup, count = C - begin;
    Group sum = load<is_whole>(of.table + id * C + begin, count);
    if (of.positions) {
      const Group position =
          load<is_whole>(of.positions + blockIdx.x % static_cast<unsigned>(of.length) * C + begin, count);
      for (int i = 0; i < kGroup; ++i) sum.values[i] += position.values[i];
    }
    if (of.dropout.place) {
      const Group factors = dropout_factors(of.dropout, row, group);
      for (int i = 0; i < kGroup; ++i) sum.values[i] *= factors.values[i];
    }
    store<is_whole>(sum, of.y + row * C + begin, count);
  }
}

// What came back for the rows, (rows, C).
template <class T>
struct RowGradients {
  DropoutMask dropout;
  int64_t rows, C;
  const T* data;
};

// The gradient of a group, in the columns from `begin` on, before dropout.
template <bool is_whole, class T>
__device__ Group gradient_of(const RowGradients<T>& of, int64_t row, int64_t begin) {
  Group gradient = load<is_whole>(of.data + row * of.C + begin, of.C - begin);
  if (of.dropout.place) {
    const Group factors = dropout_factors(of.dropout, row, begin / kGroup);
    for (int i = 0; i < kGroup; ++i) gradient.values[i] *= factors.values[i];
  }
  return gradient;
}

template <bool is_whole, class G>
__device__ void add_to(G* gradient, const Group& x, int64_t count) {
  Group sum = load<is_whole>(gradient, count);
  add(sum, x);
  store<is_whole>(sum, gradient, count);
}

inline constexpr int64_t kChunk = 32;

// `id` (rows): the tokens in order; `row`: where each of them was; `parts` (chunks, 2, C): what a chunk has of a run that began before
// it, and of one that begins in it and goes on after it. column_blocks: how many blocks share the columns.
struct SortedTokens {
  const int* id;
  const int64_t* row;
  float* parts;
  unsigned column_blocks;
};

template <bool is_whole, class G, class T>
__global__ void __launch_bounds__(kRowThreads, is_whole ? 6 : 5)
    add_runs_kernel(RowGradients<T> of, SortedTokens tokens, G* gradient) {
  const int64_t chunk = blockIdx.x / tokens.column_blocks, first = chunk * kChunk,
                last = first + kChunk < of.rows ? first + kChunk : of.rows,
                column = (blockIdx.x % tokens.column_blocks * blockDim.x + threadIdx.x) * kGroup;
  if (column >= of.C) return;
  bool began_before = first > 0 && tokens.id[first - 1] == tokens.id[first];
  Group sum{};
  for (int64_t i = first; i < last; ++i) {
    add(sum, gradient_of<is_whole>(of, tokens.row[i], column));
    const int id = tokens.id[i];
    const bool goes_on = i + 1 < of.rows && tokens.id[i + 1] == id;
    if (goes_on && i + 1 < last) continue;
    if (began_before || goes_on) {
      store<is_whole>(sum, tokens.parts + (2 * chunk + (began_before ? 0 : 1)) * of.C + column, of.C - column);
    } else {
      add_to<is_whole>(gradient + id * of.C + column, sum, of.C - column);
    }
    sum = Group{};
    began_before = false;
  }
}

// A block does a chunk and 32 groups of columns: the run that begins there and goes on, where there is one.
template <bool is_whole, class G>
__global__ void __launch_bounds__(32 * kWarps)
    add_parts_of_runs_kernel(SortedTokens tokens, int64_t rows, int64_t C, G* gradient) {
  const int64_t chunk = blockIdx.x / tokens.column_blocks, first = chunk * kChunk, next = first + kChunk,
                column = (blockIdx.x % tokens.column_blocks * 32 + threadIdx.x % 32) * kGroup;
  if (next >= rows) return;
  const int id = tokens.id[next];
  if (tokens.id[next - 1] != id || (first > 0 && tokens.id[first - 1] == id)) return;
  Group sum{};
  for (int64_t part = chunk + threadIdx.x / 32; column < C && part * kChunk < rows; part += kWarps) {
    const bool begins = part == chunk;
    if (!begins && tokens.id[part * kChunk] != id) break;
    add(sum, load<is_whole>(tokens.parts + (2 * part + (begins ? 1 : 0)) * C + column, C - column));
  }
  sum = sum_of_warps(sum);
  if (threadIdx.x < 32 && column < C) add_to<is_whole>(gradient + id * C + column, sum, C - column);
}

// A block does a position and 32 groups of columns: `gradient` (positions, C) += the sum over the batch.
template <bool is_whole, class G, class T>
__global__ void __launch_bounds__(32 * kWarps)
    add_positions_kernel(RowGradients<T> of, int64_t positions, unsigned column_blocks, G* gradient) {
  const int64_t position = blockIdx.x / column_blocks,
                column = (blockIdx.x % column_blocks * 32 + threadIdx.x % 32) * kGroup;
  Group sum{};
  for (int64_t row = position + threadIdx.x / 32 * positions; column < of.C && row < of.rows;
       row += kWarps * positions) {
    add(sum, gradient_of<is_whole>(of, row, column));
  }
  sum = sum_of_warps(sum);
  if (threadIdx.x < 32 && column < of.C) { add_to<is_whole>(gradient + position * of.C + column, sum, of.C - column); }
}

// For a row of C columns, of which a thread has one group.
inline unsigned threads_of_row(int64_t C) {
  return static_cast<unsigned>(std::min<int64_t>(kRowThreads, (groups_of(C) + 31) / 32 * 32));
}

// As cpu::embedding().
template <class Launch>
void embedding(const Launch& launch, const Dropout& dropout, const at::Tensor& ids, const at::Tensor& table,
               const at::Tensor& positions, const at::Tensor& y) {
  with_type(table.scalar_type(), [&]<class T>() {
    const auto of = embedding_rows<T>(mask_of(dropout), ids, table, positions, y);
    const bool whole = of.C % kGroup == 0 && are_aligned(of.table, of.positions, of.y);
    launch(whole ? embedding_kernel<true, T> : embedding_kernel<false, T>, ids.numel(), threads_of_row(of.C), of);
  });
}

// `gradient` (V, C) at row ids[i] += the gradient of row i.
template <class Launch, class T, class G>
void add_to_table(const Launch& launch, const RowGradients<T>& of, const at::Tensor& ids, const at::Tensor& gradient,
                  G* to) {
  const int64_t C = of.C, chunks = (of.rows + kChunk - 1) / kChunk, narrow_blocks = column_blocks(C, 32);
  const unsigned threads = threads_of_row(C);
  const auto [sorted, order] = sort_tokens(launch, ids, gradient.size(0));
  const at::Tensor parts = at::empty({chunks, 2, C}, gradient.options().dtype(at::kFloat));
  const SortedTokens tokens{read<int>(sorted), read<int64_t>(order), write<float>(parts),
                            static_cast<unsigned>(column_blocks(C, threads))};
  SortedTokens narrow = tokens;
  narrow.column_blocks = static_cast<unsigned>(narrow_blocks);
  const auto with = [&]<bool is_whole>() {
    launch(add_runs_kernel<is_whole, G, T>, chunks * tokens.column_blocks, threads, of, tokens, to);
    launch(add_parts_of_runs_kernel<is_whole, G>, chunks * narrow_blocks, 32 * kWarps, narrow, of.rows, C, to);
  };
  const bool whole = C % kGroup == 0 && are_aligned(of.data, to, read<float>(parts));
  whole ? with.template operator()<true>() : with.template operator()<false>();
}

template <class Launch, class T, class G>
void add_to_positions(const Launch& launch, const RowGradients<T>& of, int64_t positions, G* to) {
  const int64_t blocks = column_blocks(of.C, 32);
  const bool whole = of.C % kGroup == 0 && are_aligned(of.data, to);
  launch(whole ? add_positions_kernel<true, G, T> : add_positions_kernel<false, G, T>, positions * blocks, 32 * kWarps,
         of, positions, static_cast<unsigned>(blocks), to);
}

template <class Launch>
void embedding_backward(const Launch& launch, const Dropout& dropout, const at::Tensor& ids, const at::Tensor& gradient,
                        const at::Tensor& of_table, const at::Tensor& of_positions) {
  const at::ScalarType type = (of_table.defined() ? of_table : of_positions).scalar_type();
  with_types(type, gradient.scalar_type(), [&]<class G, class T>() {
    const RowGradients<T> of{mask_of(dropout), ids.numel(), gradient.size(-1), read<T>(gradient)};
    if (of_table.defined()) add_to_table(launch, of, ids, of_table, write<G>(of_table));
    if (of_positions.defined()) add_to_positions(launch, of, of_positions.size(0), write<G>(of_positions));
  });
}

}  // namespace gpt::ops::cuda
