// Whether the allocator of cpu_allocator.h is in use, as it is not under the address sanitizer or a limit on virtual memory.
#pragma once

#include <ATen/ops/empty.h>

#include "gpt/device/cpu_allocator.h"

namespace gpt::test {

inline bool cpu_memory_is_counted() {
  device::use_cpu_allocator();
  (void)at::empty({1 << 20}, at::kByte);
  return device::cpu_memory().extent > 0;
}

}  // namespace gpt::test
