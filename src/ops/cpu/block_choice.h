// Which blocks of keys a query attends to besides its own: those whose means have the largest products with it, and among equal ones the
// nearer. The attention of training and that of generation choose by the same operations in the same order. For kernels that
// cmake/CpuKernels.cmake compiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "gpt/simd/arena.h"
#include "gpt/simd/matrix_tile.h"
#include "ops/attention_shape.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

// Adds rows (count, D) to `sums`, one after the other, as they are when they are stored as T.
template <class T, class From>
void add_stored(const From* rows, int64_t stride, int64_t count, int64_t D, float* sums) {
  for (int64_t row = 0; row < count; ++row, rows += stride) {
#pragma GCC ivdep
    for (int64_t d = 0; d < D; ++d) sums[d] += static_cast<float>(static_cast<T>(rows[d]));
  }
}

// Turns the sums of a block into the mean.
inline void divide(float* sums, int64_t block, int64_t D) {
  for (int64_t d = 0; d < D; ++d) sums[d] /= static_cast<float>(block);
}

// Scratch memory in which a block of queries, all from one block of positions, choose.
struct ChoiceScratch {
  Matrix queries;     // (kMatrixRows, width): a row for each query; zeros follow up to a multiple of kColumns rows
  Matrix transposed;  // (width, kMatrixRows)
  Matrix importance;  // (blocks up to a multiple of kMatrixRows, kMatrixRows queries)
  Matrix last_means;  // (kMatrixRows, width): of the last blocks
  float *best,
      *index;  // (top, kLanes): of neighbouring queries, the largest importances in descending order, and the blocks that have them

  ChoiceScratch(int64_t blocks, int64_t top, int64_t width, Arena& arena)
      : queries(arena.matrix(kMatrixRows, width)),
        transposed(arena.matrix(width, kMatrixRows)),
        importance(arena.matrix(round_up(std::max<int64_t>(blocks, 1), kMatrixRows), kMatrixRows)),
        last_means(arena.matrix(kMatrixRows, width)),
        best(arena.take(top * kLanes)),
        index(arena.take(top * kLanes)) {}

  // What the first `count` blocks, whose means have D values, are to the queries.
  void weigh(Matrix means, int64_t count, int64_t rows, int64_t D) const {
    const int64_t columns = round_up(rows, kColumns);
    transpose(columns, queries.stride, queries, transposed);
    const auto all = [=](int64_t, int64_t) { return Extent{0, columns, 0, D}; };
    const auto nothing = [] {};
    for (int64_t block = 0; block < count; block += kMatrixRows) {
      const int64_t blocks = std::min(kMatrixRows, count - block);
      Matrix of{means.row(block), means.stride};
      if (blocks < kMatrixRows) {  // products read whole tiles
        for (int64_t i = 0; i < blocks; ++i) std::copy_n(of.row(i), D, last_means.row(i));
        of = last_means;
      }
      multiply<false>(blocks, of, transposed, Matrix{importance.row(block), importance.stride}, /*add=*/false, all,
                      nothing);
    }
  }

  // Where there are no more than `top` blocks.
  static void choose_all(int64_t count, int64_t rows, int64_t top, int32_t* chosen) {
    for (int64_t i = 0; i < rows * top; ++i) chosen[i] = static_cast<int32_t>(i % top < count ? i % top : -1);
  }

  // Writes the `top` most important of the first `count` blocks for each query, (rows, top) in no particular order; -1 where there are fewer.
  void choose(int64_t count, int64_t rows, int64_t top, int32_t* chosen) const {
    for (int64_t query = 0; query < rows; query += kLanes) {
      std::fill(best, best + top * kLanes, -std::numeric_limits<float>::infinity());
      std::fill(index, index + top * kLanes, -1.0f);
      for (int64_t block = 0; block < count; ++block)
        insert(FloatVector::loadu(importance.row(block) + query), block, top);
      for (int64_t lane = 0; lane < std::min(kLanes, rows - query); ++lane)
        for (int64_t place = 0; place < top; ++place)
          chosen[(query + lane) * top + place] = static_cast<int32_t>(index[place * kLanes + lane]);
    }
  }

 private:
  // Blocks come in the order of their positions, so that of equal ones the later is the nearer.
  void insert(FloatVector importance, int64_t block, int64_t top) const {
    constexpr int kNone = (1 << kLanes) - 1;
    const auto at = [&](float* from, int64_t place) { return FloatVector::loadu(from + place * kLanes); };
    if ((importance >= at(best, top - 1)).zero_mask() == kNone) return;
    FloatVector number(static_cast<float>(block));
    for (int64_t place = 0; place < top; ++place) {
      const FloatVector is_larger = importance >= at(best, place), old = at(best, place), old_number = at(index, place);
      FloatVector::blendv(old, importance, is_larger).store(best + place * kLanes);
      FloatVector::blendv(old_number, number, is_larger).store(index + place * kLanes);
      importance = FloatVector::blendv(importance, old, is_larger);
      number = FloatVector::blendv(number, old_number, is_larger);
    }
  }
};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
