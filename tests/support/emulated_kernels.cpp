#include "support/emulated_kernels.h"

#include "support/cuda_emulation.h"  // before the kernels, which it compiles for the host

#include "src/ops/cuda/kernels.cuh"

namespace gpt::test {

ops::Kernels emulated_kernels() { return ops::cuda::kernels_by<emulation::Launch>(); }

}  // namespace gpt::test
