// Heads of a packed tensor (B, T, heads, D) and the float32 blocks in scratch memory that attention computes with: converting,
// scaling and rotating on the way in and out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "gpt/simd/arena.h"
#include "gpt/simd/matrix_tile.h"
#include "gpt/simd/pairs.h"
#include "gpt/simd/vector_math.h"
#include "ops/attention_shape.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

// One head of a tensor (B, T, heads, D), from a position on.
template <class T>
struct Head {
  T* data;
  int64_t stride;

  Head(T* tensor, const AttentionShape& shape, int64_t heads, int64_t batch, int64_t head, int64_t position)
      : data(tensor + ((batch * shape.T + position) * heads + head) * shape.D), stride(heads * shape.D) {}
};

// The heads of a task in a tensor of `heads` heads: packed like qkv, or of queries alone.
template <class T>
class TaskHeads {
 public:
  TaskHeads(T* tensor, int64_t heads, const AttentionShape& shape, const AttentionTask& task)
      : tensor_(tensor), heads_(heads), shape_(shape), task_(task) {}

  // g: among the query heads that share a key/value head.
  Head<T> query(int64_t g, int64_t position) const { return head(task_.kv_head * shape_.group() + g, position); }
  Head<T> key(int64_t position) const { return head(shape_.H + task_.kv_head, position); }
  Head<T> value(int64_t position) const { return head(shape_.H + shape_.KV + task_.kv_head, position); }

 private:
  Head<T> head(int64_t head, int64_t position) const {
    return Head<T>(tensor_, shape_, heads_, task_.batch, head, position);
  }

  T* tensor_;
  int64_t heads_;
  const AttentionShape& shape_;
  AttentionTask task_;
};

// direction 1 rotates forward, -1 back.
inline void rotate(float* row, const AttentionShape& shape, int64_t position, float direction) {
  const int64_t half = shape.D / 2;
  const float *cos = shape.cos + position * half, *sin = shape.sin + position * half;
  float* second = row + half;
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float a = row[i], b = second[i], s = direction * sin[i];
    row[i] = a * cos[i] - b * s;
    second[i] = b * cos[i] + a * s;
  }
}

// Calls work(D) with a constant for usual sizes of heads.
template <class Work>
void with_constant_width(int64_t D, const Work& work) {
  switch (D) {
    case 32: return work(std::integral_constant<int64_t, 32>());
    case 64: return work(std::integral_constant<int64_t, 64>());
    case 128: return work(std::integral_constant<int64_t, 128>());
    default: work(D);
  }
}

// Rows from `from` times factor(row) -> rows in `to`. The compiler turns loops over kColumns values into a few vector
// instructions, unless it unrolls them first.
template <class From, class To, class Factor>
void convert(const From* from, int64_t from_stride, int64_t rows, int64_t D, const Factor& factor, To* to,
             int64_t to_stride) {
  with_constant_width(D, [&](auto columns) {
    for (int64_t i = 0; i < rows; ++i) {
      const From* values = from + i * from_stride;
      To* results = to + i * to_stride;
      const float f = factor(i);
      int64_t d = 0;
      for (; d + kColumns <= columns; d += kColumns) {
#pragma GCC ivdep
#pragma GCC unroll 1
        for (int64_t j = 0; j < kColumns; ++j) results[d + j] = static_cast<To>(static_cast<float>(values[d + j]) * f);
      }
      for (; d < columns; ++d) results[d] = static_cast<To>(static_cast<float>(values[d]) * f);
    }
  });
}

// Rows of a head -> float32 rows, multiplied by `factor`, with zeros up to their stride; zero rows up to a multiple of
// kPackedRows. position: of the first row, if they are to be rotated; else -1.
template <class T>
void pack(Head<const T> head, int64_t rows, const AttentionShape& shape, float factor, int64_t position,
          Matrix result) {
  convert(head.data, head.stride, rows, shape.D, [=](int64_t) { return factor; }, result.data, result.stride);
  if (shape.D < result.stride) {
    for (int64_t i = 0; i < rows; ++i) std::fill(result.row(i) + shape.D, result.row(i + 1), 0.0f);
  }
  if (position >= 0 && shape.cos) {
    for (int64_t i = 0; i < rows; ++i) rotate(result.row(i), shape, position + i, 1);
  }
  std::fill(result.row(rows), result.row(round_up(rows, kPackedRows)), 0.0f);
}

// The reverse: rows times `factor` -> a head. Changes the rows.
template <class T>
void unpack(Matrix from, int64_t rows, const AttentionShape& shape, float factor, int64_t position, Head<T> head) {
  if (position >= 0 && shape.cos) {
    for (int64_t i = 0; i < rows; ++i) rotate(from.row(i), shape, position + i, -1);
  }
  convert(from.data, from.stride, rows, shape.D, [=](int64_t) { return factor; }, head.data, head.stride);
}

// Sums over D of the products of two heads' rows. products (kMatrixRows, kColumns), transposed (kColumns, kMatrixRows): scratch
// memory.
template <class T>
void dots(Head<const T> a, Head<const T> b, int64_t rows, int64_t D, Matrix products, Matrix transposed,
          float* result) {
  with_constant_width(D, [&](auto columns) {
    for (int64_t i = 0; i < rows; ++i) {
      const T *x = a.data + i * a.stride, *y = b.data + i * b.stride;
      float* sums = products.row(i);
      std::fill(sums, sums + kColumns, 0.0f);
      int64_t d = 0;
      for (; d + kColumns <= columns; d += kColumns) {
#pragma GCC ivdep
#pragma GCC unroll 1
        for (int64_t j = 0; j < kColumns; ++j) sums[j] += static_cast<float>(x[d + j]) * static_cast<float>(y[d + j]);
      }
      for (int64_t j = 0; d < columns; ++d, ++j) sums[j] += static_cast<float>(x[d]) * static_cast<float>(y[d]);
    }
  });
  transpose(round_up(rows, kColumns), kColumns, products, transposed);
  for (int64_t i = 0; i < rows; i += kLanes) {
    FloatVector sum(0.0f);
    for (int64_t j = 0; j < kColumns; ++j) sum = sum + FloatVector::loadu(transposed.row(j) + i);
    sum.store(result + i);
  }
}

// perf: OPT-8. Brings what the next task reads and writes into the cache while this one computes. The rows of a head are far
// from each other, so that the processor does not do it by itself.
class Ahead {
 public:
  // The rows of all positions of a head.
  template <class T>
  void add(const Head<T>& head, const AttentionShape& shape) {
    next_[count_] = reinterpret_cast<uintptr_t>(head.data);
    stride_[count_++] = head.stride * sizeof(T);
    bytes_ = shape.D * sizeof(T);
    rows_ = shape.T;
  }

  template <class T>
  void add_packed(const TaskHeads<T>& of, const AttentionShape& shape) {
    for (const Head<T>& head : {of.query(0, 0), of.key(0), of.value(0)}) add(head, shape);
  }

  // The next rows of each.
  void operator()() {
    constexpr int64_t kLine = 64, kRowsAtOnce = 4;
    const int64_t rows = std::min(rows_, kRowsAtOnce);
    rows_ -= rows;
    for (int i = 0; i < count_; ++i) {
      for (int64_t row = 0; row < rows; ++row, next_[i] += stride_[i]) {
        for (int64_t at = 0; at < bytes_; at += kLine) __builtin_prefetch(reinterpret_cast<const void*>(next_[i] + at));
      }
    }
  }

 private:
  uintptr_t next_[8];  // not pointers: a row is never used through them
  int64_t stride_[8], count_ = 0, rows_ = 0, bytes_ = 0;
};

// The task after this one on the same thread, if there is one.
inline std::optional<AttentionTask> following(const AttentionShape& shape, AttentionTask task) {
  if (++task.kv_head == shape.KV) {
    task.kv_head = 0;
    if (++task.batch == shape.B) return std::nullopt;
  }
  return task;
}

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
