// Our CUDA kernels under emulation, in the place of the CPU's: an operator that is given tensors on the CPU then computes as it would
// on a GPU, from its own checks to the last tail, and is held to the same tests.
#pragma once

#include <ATen/ops/empty.h>

#include "src/ops/kernels.h"
#include "support/poisoned_memory.h"

namespace gpt::test {

// The emulated kernels of every operator that has some.
ops::Kernels emulated_kernels();

// In use as long as this lives. New memory then holds NaN, as a GPU's may.
class EmulatedKernels {
 public:
  EmulatedKernels() : in_use_(ops::cpu_kernels()), before_(in_use_) { in_use_ = emulated_kernels(); }
  ~EmulatedKernels() { in_use_ = before_; }
  EmulatedKernels(const EmulatedKernels&) = delete;
  EmulatedKernels& operator=(const EmulatedKernels&) = delete;

 private:
  ops::Kernels& in_use_;
  ops::Kernels before_;
  PoisonedMemory poisoned_;
};

}  // namespace gpt::test
