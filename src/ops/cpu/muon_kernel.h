// Muon's passes of a CPU in vector instructions. muon_kernel.cpp is compiled for several kinds of processor (cmake/CpuKernels.cmake);
// muon.cpp distributes the work.
#pragma once

#include <cstdint>

#include "ops/muon_values.h"

namespace gpt::ops::cpu {

// For the blocks of kParameterAlignment values from `begin` to before `end`.
template <class M>
using MuonDirectionKernel = void (*)(const MuonMomentum<M>& of, const MuonFactors& factors, float inverse_divisor,
                                     int64_t begin, int64_t end);
using MuonUpdateKernel = void (*)(const MuonValues& of, const MuonStep& step, int64_t begin, int64_t end);

}  // namespace gpt::ops::cpu
