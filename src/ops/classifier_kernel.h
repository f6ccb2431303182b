// The CPU's cross entropy in vector instructions, over rows of logits. classifier_kernel.cpp is compiled for several kinds of
// processor (cmake/CpuKernels.cmake); classifier_cpu.cpp distributes the work.
#pragma once

#include <cstdint>

namespace gpt::ops::cpu {

template <class T>
struct CrossEntropyArguments {
  int64_t vocabulary, stride;  // a row's real logits; from one row to the next
  float smoothing;
  T* logits;
  const int64_t* targets;
  float* losses;
  const float* scale;  // of the gradients that replace the logits; null: they stay as they are
};

// For the rows from `begin` to before `end`.
template <class T>
using CrossEntropyKernel = void (*)(const CrossEntropyArguments<T>&, int64_t begin, int64_t end);

}  // namespace gpt::ops::cpu
