#include "gpt/device/graph.h"

#include <c10/util/Exception.h>

#ifdef GPT_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace gpt {

#ifdef GPT_CUDA
namespace {

class CudaGraph : public Graph {
 public:
  CudaGraph(at::cuda::MempoolId_t memory, c10::DeviceIndex device) : memory_(memory), device_(device) {}

  void record(const std::function<void()>& work) override {
    c10::cuda::device_synchronize();                // sync: once for each graph
    c10::cuda::CUDACachingAllocator::emptyCache();  // what the work took without a graph is taken anew
    // Other threads, which load batches, may do what a recording may not.
    graph_.capture_begin(memory_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
      graph_.capture_end();
    } catch (...) {
      give_up();
      throw;
    }
  }

  void replay() override { graph_.replay(); }

 private:
  // Whatever state the recording is in, the stream and the allocator work as before. Each of these fails where it was done already.
  void give_up() {
    const auto try_to = [](const auto& act) {
      try {
        act();
      } catch (const c10::Error&) { return; }
    };
    try_to([this] { graph_.capture_end(); });
    try_to([this] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, memory_); });
    try_to([this] { graph_.reset(); });
    cudaGetLastError();  // must not be reported by the next launch check
  }

  at::cuda::CUDAGraph graph_;
  at::cuda::MempoolId_t memory_;
  c10::DeviceIndex device_;
};

}  // namespace

GraphFactory graphs_of(c10::Device device) {
  if (!device.is_cuda()) return {};
  return [memory = at::cuda::graph_pool_handle(), index = device.index()] {
    return std::make_unique<CudaGraph>(memory, index);
  };
}

void use_recordable_stream(c10::Device device) {
  if (!device.is_cuda() ||
      c10::cuda::getCurrentCUDAStream(device.index()) != c10::cuda::getDefaultCUDAStream(device.index()))
    return;
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
}
#else
GraphFactory graphs_of(c10::Device) { return {}; }

void use_recordable_stream(c10::Device) {}
#endif

}  // namespace gpt
