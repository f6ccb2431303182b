#include "gpt/device/graph.h"

#ifdef GPT_CUDA
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <mutex>
#endif

namespace gpt {

#ifdef GPT_CUDA
namespace {

class CudaGraph : public Graph {
 public:
  CudaGraph(at::cuda::MempoolId_t memory, c10::Device device) : memory_(memory), device_(device) {}

  void record(const std::function<void()>& work) override {
    c10::cuda::device_synchronize();                // sync: once for each graph
    c10::cuda::CUDACachingAllocator::emptyCache();  // what the work took without a graph is taken anew
    try {
      // Other threads, which load batches, may do what a recording may not.
      graph_.capture_begin(memory_, cudaStreamCaptureModeThreadLocal);
      work();
      graph_.capture_end();
    } catch (...) {
      give_up();
      throw;
    }
  }

  void replay() override { graph_.replay(); }

 private:
  // Whatever state the recording is in, stream, allocators and random numbers work as before. Each of these throws where it has
  // been done already.
  void give_up() {
    const auto try_to = [](const auto& act) {
      try {
        act();
      } catch (const c10::Error&) { return; }
    };
    try_to([this] { graph_.capture_end(); });
    try_to([this] {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), memory_);
      c10::cuda::CUDACachingAllocator::releasePool(device_.index(), memory_);
    });
    try_to([this] {
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(memory_);
      at::getHostAllocator(at::kCUDA)->release_pool(memory_);
    });
    try_to([this] { graph_.reset(); });
    cudaGetLastError();  // must not be reported by the next launch check
    // The generator's state still takes itself for one that is recorded; a copy has the same seed and offset, and does not.
    at::Generator generator = at::globalContext().defaultGenerator(device_);
    std::lock_guard lock(generator.mutex());
    generator.graphsafe_set_state(generator.clone());
  }

  at::cuda::CUDAGraph graph_;
  at::cuda::MempoolId_t memory_;
  c10::Device device_;
};

}  // namespace

GraphFactory graphs_of(c10::Device device) {
  if (!device.is_cuda()) return {};
  return [memory = at::cuda::graph_pool_handle(), device] { return std::make_unique<CudaGraph>(memory, device); };
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
