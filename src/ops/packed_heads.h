// Heads of a packed tensor (B, T, heads, D) and the float32 blocks in scratch memory that attention computes with: converting,
// scaling and rotating on the way in and out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "attention_shape.h"
#include "matrix_tile.h"
#include "vector_math.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

// Consecutive pieces of memory, each aligned to 64 bytes; without memory it only counts.
class Arena {
 public:
  explicit Arena(float* memory) : memory_(memory) {}
  float* take(int64_t count) {
    float* result = memory_ ? memory_ + used_ : nullptr;
    used_ += round_up(count, kColumns);
    return result;
  }
  Matrix matrix(int64_t rows, int64_t columns) { return {take(rows * columns), columns}; }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

// One head of a tensor (B, T, heads, D), from a position on.
template <class T>
struct Head {
  T* data;
  int64_t stride;

  Head(T* tensor, const AttentionShape& shape, int64_t heads, int64_t batch, int64_t head, int64_t position)
      : data(tensor + ((batch * shape.T + position) * heads + head) * shape.D), stride(heads * shape.D) {}
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

// The compiler turns loops over this many values into a few vector instructions.
inline constexpr int64_t kChunk = kColumns;

template <class From, class To>
void convert(const From* from, int64_t count, float factor, To* to) {
  int64_t d = 0;
  for (; d + kChunk <= count; d += kChunk) {
#pragma GCC ivdep
    for (int64_t i = d; i < d + kChunk; ++i) to[i] = static_cast<To>(static_cast<float>(from[i]) * factor);
  }
  for (; d < count; ++d) to[d] = static_cast<To>(static_cast<float>(from[d]) * factor);
}

// Rows of a head -> float32 rows, multiplied by `factor`, with zeros up to their stride; zero rows up to a multiple of
// kColumns. position: of the first row, if they are to be rotated; else -1.
template <class T>
void pack(Head<const T> head, int64_t rows, const AttentionShape& shape, float factor, int64_t position,
          Matrix result) {
  const bool rotates = position >= 0 && shape.cos;
  for (int64_t i = 0; i < rows; ++i) {
    float* to = result.data + i * result.stride;
    convert(head.data + i * head.stride, shape.D, factor, to);
    for (int64_t d = shape.D; d < result.stride; ++d) to[d] = 0;
    if (rotates) rotate(to, shape, position + i, 1);
  }
  std::fill(result.data + rows * result.stride, result.data + round_up(rows, kColumns) * result.stride, 0.0f);
}

// The reverse: rows times `factor` -> a head. Changes the rows.
template <class T>
void unpack(Matrix from, int64_t rows, const AttentionShape& shape, float factor, int64_t position, Head<T> head) {
  const bool rotates = position >= 0 && shape.cos;
  for (int64_t i = 0; i < rows; ++i) {
    float* row = from.data + i * from.stride;
    if (rotates) rotate(row, shape, position + i, -1);
    convert(row, shape.D, factor, head.data + i * head.stride);
  }
}

template <class T>
float dot(const T* a, const T* b, int64_t count) {
  float sums[kChunk] = {};
  int64_t d = 0;
  for (; d + kChunk <= count; d += kChunk) {
    for (int64_t i = 0; i < kChunk; ++i) sums[i] += static_cast<float>(a[d + i]) * static_cast<float>(b[d + i]);
  }
  for (int64_t i = 0; d < count; ++d, ++i) sums[i] += static_cast<float>(a[d]) * static_cast<float>(b[d]);
  FloatVector sum(0.0f);
  for (int64_t i = 0; i < kChunk; i += kLanes) sum = sum + FloatVector::loadu(sums + i);
  return sum_of(sum);
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

  // The next rows of each.
  void operator()() {
    constexpr int64_t kLine = 64, kRowsAtOnce = 3;
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
