// Within its scope LibTorch throws c10::Error where the host would wait for the GPU: a step that has run before must not. On a CPU
// it does nothing.
#pragma once

#include <c10/core/Device.h>

#ifdef GPT_CUDA
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace gpt::test {

class NoSynchronization {
 public:
  NoSynchronization(const NoSynchronization&) = delete;
  NoSynchronization& operator=(const NoSynchronization&) = delete;
#ifdef GPT_CUDA
  explicit NoSynchronization(c10::Device device) {
    if (device.is_cuda()) c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  }
  ~NoSynchronization() { c10::cuda::warning_state().set_sync_debug_mode(before_); }

 private:
  c10::cuda::SyncDebugMode before_ = c10::cuda::warning_state().get_sync_debug_mode();
#else
  explicit NoSynchronization(c10::Device) {}
  ~NoSynchronization() {}
#endif
};

}  // namespace gpt::test
