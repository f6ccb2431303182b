// How our CUDA kernels are launched, apart from the device: the .cuh of an operator chooses kernels and their arguments, and hands
// them to a `launch`, which is a stream's or, in the tests, an emulation's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <type_traits>

#include "block_limits.h"
#include "ops/dropout.h"
#include "ops/row_arguments.h"
#include "vectors.cuh"

namespace gpt::ops::cuda {

inline DropoutMask mask_of(const Dropout& dropout) {
  TORCH_CHECK(dropout.first % kGroup == 0, "dropout: a part of the columns must begin at a multiple of ", kGroup,
              ", not at ", dropout.first);
  return {read<int64_t>(dropout.place), dropout.kept_of_65536, dropout.site, dropout.of_sample, dropout.first / kGroup};
}

// Whether groups that begin at multiples of kGroup elements from the pointers are aligned; null is.
template <class... T>
bool are_aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// work.operator()<T>()
template <class Work>
void with_type(at::ScalarType type, const Work& work) {
  switch (type) {
    case at::kFloat: return work.template operator()<float>();
    case at::kBFloat16: return work.template operator()<c10::BFloat16>();
    case at::kHalf: return work.template operator()<c10::Half>();
    default: TORCH_CHECK(false, "no kernel for ", type);
  }
}

// work.operator()<T, U>() for a U and the same type, or float32, beside it.
template <class Work>
void with_types(at::ScalarType wide, at::ScalarType narrow, const Work& work) {
  with_type(narrow, [&]<class U>() {
    if (wide == narrow) return work.template operator()<U, U>();
    TORCH_CHECK(wide == at::kFloat, "no kernel for ", wide, " with ", narrow);
    if constexpr (!std::is_same_v<U, float>) work.template operator()<float, U>();
  });
}

}  // namespace gpt::ops::cuda

#ifdef __CUDACC__
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <set>
#include <utility>

namespace gpt::ops::cuda {

// On the current stream; nothing for no blocks.
struct StreamLaunch {
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), int64_t blocks, unsigned threads,
                  const Arguments&... arguments) const {
    with_shared_memory(0, kernel, blocks, threads, arguments...);
  }

  // Each block has so many bytes of dynamic shared memory.
  template <class... Parameters, class... Arguments>
  void with_shared_memory(int64_t bytes, void (*kernel)(Parameters...), int64_t blocks, unsigned threads,
                          const Arguments&... arguments) const {
    if (blocks == 0) return;
    if (bytes > kForAnyKernel) allow_all_shared_memory(reinterpret_cast<const void*>(kernel));
    kernel<<<static_cast<unsigned>(blocks), threads, static_cast<size_t>(bytes), c10::cuda::getCurrentCUDAStream()>>>(
        arguments...);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }

  static BlockLimits block_limits() {
    const cudaDeviceProp& device = *at::cuda::getCurrentDeviceProperties();
    return {.threads = device.maxThreadsPerMultiProcessor,
            .shared_memory = static_cast<int64_t>(device.sharedMemPerMultiprocessor),
            .shared_memory_of_block = static_cast<int64_t>(device.sharedMemPerBlockOptin),
            .reserved = static_cast<int64_t>(device.reservedSharedMemPerBlock)};
  }

  static int64_t multiprocessors() { return at::cuda::getCurrentDeviceProperties()->multiProcessorCount; }

  // How many blocks of so many threads all multiprocessors run at once, as registers and shared memory allow.
  template <class... Parameters>
  static int64_t blocks_at_once(void (*kernel)(Parameters...), unsigned threads) {
    int of_one = 0;
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_one, kernel, static_cast<int>(threads), 0));
    return of_one * multiprocessors();
  }

 private:
  // Once on each device, so that no run that is recorded as a graph does more than launch.
  static void allow_all_shared_memory(const void* kernel) {
    thread_local std::set<std::pair<const void*, int>> allowed;
    int device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    if (!allowed.emplace(kernel, device).second) return;
    cudaFuncAttributes own{};
    C10_CUDA_CHECK(cudaFuncGetAttributes(&own, kernel));
    C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(block_limits().shared_memory_of_block - own.sharedSizeBytes)));
    C10_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
  }
};

}  // namespace gpt::ops::cuda
#endif
