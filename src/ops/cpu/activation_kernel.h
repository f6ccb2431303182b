// The CPU's activations in vector instructions, over blocks of neighbouring elements. activation_kernel.cpp is compiled for several
// kinds of processor (cmake/CpuKernels.cmake); activation.cpp distributes the work.
#pragma once

#include <cstdint>

#include "gpt/ops/activation.h"
#include "gpt/simd/dropout_mask.h"

namespace gpt::ops::cpu {

// y = act(x) [* in] [* mask], of rows of so many columns. Without dropout all elements can be one row.
template <class T>
struct ActivationArguments {
  Activation activation;
  DropoutMask dropout;
  int64_t columns;
  const T* x;
  const T* in;  // null: without a gate
};

inline constexpr int64_t kActivationBlock = 64;
// How many blocks a row has, of which the last one may be smaller.
inline int64_t activation_blocks(int64_t columns) { return (columns + kActivationBlock - 1) / kActivationBlock; }

// The kernels for tensors of type T, for the blocks from `begin` to before `end`, which are counted row after row.
template <class T>
struct ActivationKernels {
  void (*forward)(const ActivationArguments<T>&, int64_t begin, int64_t end, T* y);
  void (*backward)(const ActivationArguments<T>&, int64_t begin, int64_t end, const T* y_gradient, T* x_gradient,
                   T* in_gradient);
};

}  // namespace gpt::ops::cpu
