#include "gpt/device/host_copies.h"

#include <ATen/ops/empty.h>

#ifdef GPT_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

#include "gpt/device/memory.h"

namespace gpt::device {
namespace {

// There is but one memory, so that nothing is gained: for tests.
class PlainCopies : public HostCopies {
 public:
  at::Tensor buffer(int64_t bytes) override { return at::empty({bytes}, at::kByte); }
  void begin_out(const at::Tensor& from, const at::Tensor& buffer) override {
    buffer.narrow(0, 0, from.numel()).copy_(from);
  }
  std::pair<at::Tensor, std::function<void()>> begin_in(const at::Tensor& buffer, int64_t bytes) override {
    return {buffer.narrow(0, 0, bytes).clone(), [] {}};
  }
};

#ifdef GPT_CUDA
class CudaHostCopies : public HostCopies {
 public:
  explicit CudaHostCopies(at::Device device)
      : device_(device), stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  at::Tensor buffer(int64_t bytes) override {
    return zeros_on_host(bytes, at::kByte, device_, "training.swap_activations");
  }

  void begin_out(const at::Tensor& from, const at::Tensor& buffer) override {
    at::cuda::CUDAEvent computed;
    computed.record(c10::cuda::getCurrentCUDAStream(device_.index()));
    computed.block(stream_);
    C10_CUDA_CHECK(cudaMemcpyAsync(buffer.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
                                   cudaMemcpyDeviceToHost, stream_));
    from.record_stream(stream_);
  }

  std::pair<at::Tensor, std::function<void()>> begin_in(const at::Tensor& buffer, int64_t bytes) override {
    const c10::cuda::CUDAStreamGuard guard(stream_);  // whose memory is used again in its own order
    const at::Tensor tensor = at::empty({bytes}, at::TensorOptions(device_).dtype(at::kByte));
    C10_CUDA_CHECK(cudaMemcpyAsync(tensor.mutable_data_ptr(), buffer.const_data_ptr(), tensor.nbytes(),
                                   cudaMemcpyHostToDevice, stream_));
    auto arrived = std::make_shared<at::cuda::CUDAEvent>();
    arrived->record(stream_);
    return {tensor, [tensor, arrived] {
              const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(tensor.device().index());
              arrived->block(current);
              // Its memory belongs to the other stream, and must outlive this one's work.
              tensor.record_stream(current);
            }};
  }

 private:
  const at::Device device_;
  const c10::cuda::CUDAStream stream_;
};
#endif

}  // namespace

std::shared_ptr<HostCopies> host_copies(at::Device device) {
#ifdef GPT_CUDA
  if (device.is_cuda()) return std::make_shared<CudaHostCopies>(device);
#endif
  TORCH_CHECK(device.is_cpu(), "host_copies: there are none for ", device);
  return std::make_shared<PlainCopies>();
}

}  // namespace gpt::device
