#include "gpt/device/memory.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AllocatorConfig.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/process_memory.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/host.h"

#ifdef GPT_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#endif

namespace gpt::device {
namespace {

bool segments_can_grow = true;

void configure_cpu_memory(const TrainingConfig& training) {
  const double fraction = training.allocator.memory_fraction;
  const bool asks = training.execution.memory_check;
  if (fraction == 1) return limit_cpu_memory(asks ? growable_by_tensors : std::function<int64_t()>());
  limit_cpu_memory([fraction, asks] {
    const int64_t share = static_cast<int64_t>(fraction * static_cast<double>(host::memory_bytes())),
                  left = share - process_memory::bytes();
    return asks ? std::min(growable_by_tensors(), left) : left;
  });
}

}  // namespace

at::Tensor zeros_on_host(int64_t count, at::ScalarType type, at::Device device, [[maybe_unused]] const char* setting) {
#ifdef GPT_CUDA
  if (device.is_cuda()) {
    // LibTorch's allocator of such memory rounds up to a power of two.
    const c10::cuda::CUDAGuard guard(device);
    const size_t bytes = static_cast<size_t>(count) * c10::elementSize(type);
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped) != cudaSuccess) {
      (void)cudaGetLastError();  // it is handled
      throw Error(ExitCode::memory, fmt::format("the host cannot lock {} of its memory for the GPU; lower {}",
                                                format_bytes(static_cast<double>(bytes)), setting));
    }
    return at::from_blob(memory, {count}, [](void* at) { (void)cudaFreeHost(at); }, at::TensorOptions(type)).zero_();
  }
#endif
  return at::zeros({count}, at::TensorOptions(device).dtype(type));
}

bool has_allocator_variable() { return std::getenv("PYTORCH_ALLOC_CONF") || std::getenv("PYTORCH_CUDA_ALLOC_CONF"); }

void use_expandable_segments(bool are_expandable) {
  if (has_allocator_variable()) return;
  c10::CachingAllocator::setAllocatorSettings(are_expandable && segments_can_grow ? "expandable_segments:True"
                                                                                  : "expandable_segments:False");
}

bool give_up_expandable_segments() {
  if (has_allocator_variable() || !segments_can_grow) return false;
  segments_can_grow = false;
  use_expandable_segments(false);
  return true;
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
  malloc_trim(0);  // gives back the memory of small tensors, and of all where LibTorch keeps its own allocator
}

}  // namespace gpt::device
