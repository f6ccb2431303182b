// Scratch memory that is handed out in pieces. For kernels that cmake/CpuKernels.cmake compiles.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpt/simd/matrix_tile.h"

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

  template <class E>
  MatrixOf<E> elements(int64_t rows, int64_t columns) {
    return {reinterpret_cast<E*>(take(rows * columns)), columns};
  }

  // A factor that is made from `source`; of float32, the source.
  template <class E, class Source>
  MatrixOf<E> factor(MatrixOf<Source> source, int64_t rows, int64_t columns) {
    if constexpr (std::is_same_v<E, float>) {
      return source;
    } else {
      return elements<E>(rows, columns);
    }
  }
  int64_t used() const { return used_; }

 private:
  float* memory_;
  int64_t used_ = 0;
};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
