// The CPU's cross entropy in vector instructions, over rows of logits. classifier_kernel.cpp is compiled for several kinds of
// processor (cmake/CpuKernels.cmake); classifier.cpp distributes the work.
#pragma once

#include <cstdint>

#include "ops/rows.h"

namespace gpt::ops::cpu {

// For the rows from `begin` to before `end`.
template <class T>
using CrossEntropyKernel = void (*)(const CrossEntropyRows<T>&, int64_t begin, int64_t end);

}  // namespace gpt::ops::cpu
