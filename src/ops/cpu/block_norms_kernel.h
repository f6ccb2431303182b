// The norms of blocks in vector instructions. block_norms_kernel.cpp is compiled for several kinds of processor
// (cmake/CpuKernels.cmake); flat_norm.cpp distributes the work.
#pragma once

#include <cstdint>

namespace gpt::ops::cpu {

// For the blocks of kParameterAlignment values from `begin` to before `end`: a norm each.
template <class T>
using BlockNormsKernel = void (*)(const T* values, int64_t begin, int64_t end, float* norms);

}  // namespace gpt::ops::cpu
