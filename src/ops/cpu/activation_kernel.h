// The CPU's activations in vector instructions, over stretches of flat tensors. activation_kernel.cpp is compiled for several
// kinds of processor (cmake/CpuKernels.cmake); activation_cpu.cpp distributes the work.
#pragma once

#include <cstdint>

#include "gpt/ops/activation.h"
#include "gpt/simd/dropout_mask.h"

namespace gpt::ops::cpu {

// y = act(x) [* in] [* mask]
template <class T>
struct ActivationArguments {
  Activation activation;
  DropoutMask dropout;
  const T* x;
  const T* in;  // null: without a gate
};

// The kernels for tensors of type T, for the elements from `begin` to before `end`; `begin` is a multiple of kActivationBlock.
inline constexpr int64_t kActivationBlock = 64;
template <class T>
struct ActivationKernels {
  void (*forward)(const ActivationArguments<T>&, int64_t begin, int64_t end, T* y);
  void (*backward)(const ActivationArguments<T>&, int64_t begin, int64_t end, const T* y_gradient, T* x_gradient,
                   T* in_gradient);
};

}  // namespace gpt::ops::cpu
