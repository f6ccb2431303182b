// The CPU's cross entropy with a teacher in vector instructions, as classifier_kernel.h has the one without. distillation.cpp distributes
// the work.
#pragma once

#include <cstdint>

#include "ops/distillation_rows.h"

namespace gpt::ops::cpu {

// For the rows from `begin` to before `end`.
template <class T>
using DistillationKernel = void (*)(const DistillationRows<T>&, int64_t begin, int64_t end);

}  // namespace gpt::ops::cpu
