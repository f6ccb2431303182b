#include "gpt/device/memory.h"

#include <c10/core/AllocatorConfig.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "gpt/device/cpu_allocator.h"
#include "gpt/device/host.h"

#ifdef GPT_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace gpt {
namespace {

void configure_cpu_memory(const TrainingConfig& training) {
  const double fraction = training.allocator.memory_fraction;
  const bool asks = training.execution.memory_check;
  if (fraction == 1) return limit_cpu_memory(asks ? growable_by_tensors : std::function<int64_t()>());
  limit_cpu_memory([fraction, asks] {
    const int64_t share = static_cast<int64_t>(fraction * static_cast<double>(host::memory_bytes())),
                  left = share - host::resident_bytes();
    return asks ? std::min(growable_by_tensors(), left) : left;
  });
}

}  // namespace

bool has_allocator_variable() { return std::getenv("PYTORCH_ALLOC_CONF") || std::getenv("PYTORCH_CUDA_ALLOC_CONF"); }

void use_expandable_segments(bool are_expandable) {
  if (has_allocator_variable()) return;
  c10::CachingAllocator::setAllocatorSettings(are_expandable ? "expandable_segments:True"
                                                             : "expandable_segments:False");
}

void configure_memory(const TrainingConfig& training, at::Device device) {
  if (device.is_cpu()) return configure_cpu_memory(training);
#ifdef GPT_CUDA
  release_unused_memory(device);  // segments from the trial of the device
  use_expandable_segments(training.allocator.expandable_segments);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(training.allocator.memory_fraction, device.index());
#endif
}

void release_unused_memory(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) return c10::cuda::CUDACachingAllocator::emptyCache();
#endif
  if (!device.is_cpu()) return;
  release_cpu_memory();
  malloc_trim(0);  // of small tensors, and of all where LibTorch keeps its own allocator
}

}  // namespace gpt
