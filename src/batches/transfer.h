// A batch on its way from host memory to the device. On a GPU it travels on a stream of its own, beside the step that is
// being computed; only the step that uses the batch waits for it, and only on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#ifdef GPT_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace gpt::batches {

class Transfer {
 public:
  Transfer() = default;  // of nothing
  // Starts it, from any thread. To overlap with computing, `host` must be pinned.
  Transfer(const at::Tensor& host, at::Device device) {
#ifdef GPT_CUDA
    if (device.is_cuda()) {
      const c10::cuda::CUDAStreamGuard guard(copy_stream(device));
      tensor_ = host.to(device, /*non_blocking=*/true);
      arrived_ = std::make_shared<at::cuda::CUDAEvent>();
      arrived_->record(guard.current_stream());
      return;
    }
#endif
    tensor_ = host.to(device);
  }

  // The batch, for what is computed on the current stream from here on.
  at::Tensor take() && {
#ifdef GPT_CUDA
    if (arrived_) {
      const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(tensor_.device().index());
      arrived_->block(stream);
      tensor_.record_stream(stream);  // its memory belongs to the other stream, and must outlive this one's work
    }
#endif
    return std::move(tensor_);
  }

 private:
#ifdef GPT_CUDA
  static c10::cuda::CUDAStream copy_stream(at::Device device) {
    static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
    return stream;  // one for the process, which trains on one device
  }
  std::shared_ptr<at::cuda::CUDAEvent> arrived_;
#endif
  at::Tensor tensor_;
};

}  // namespace gpt::batches
