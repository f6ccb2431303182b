#include "gpt/device/graph.h"

#ifdef GPT_CUDA
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <string>
#endif

namespace gpt::device {

#ifdef GPT_CUDA
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

at::HostAllocator& host_allocator() { return *at::getHostAllocator(at::kCUDA); }

void try_to(const std::function<void()>& act) {
  try {
    act();
  } catch (const c10::Error&) { return; }
}

void stop_allocating(at::cuda::MempoolId_t memory, c10::Device device) {
  allocator::endAllocateToPool(device.index(), memory);
  allocator::releasePool(device.index(), memory);
}

class CudaGraph : public Graph {
 public:
  CudaGraph(at::cuda::MempoolId_t memory, c10::Device device) : memory_(memory), device_(device) {}

  void record(const std::function<void()>& work) override {
    c10::cuda::device_synchronize();  // sync: once for each graph
    allocator::emptyCache();          // the graph takes what it needs from other memory
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
    try_to([this] { graph_.capture_end(); });
    try_to([this] { stop_allocating(memory_, device_); });
    try_to([this] {
      host_allocator().end_allocate_to_pool(memory_);
      host_allocator().release_pool(memory_);
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

class CudaGraphs : public Graphs {
 public:
  explicit CudaGraphs(c10::Device device) : memory_(at::cuda::graph_pool_handle()), device_(device) {
    // Both exist until they are released. A recording opens the second too, and after one that failed it could not be opened again.
    if (shares_memory_) allocator::createOrIncrefPool(device_.index(), memory_);
    host_allocator().begin_allocate_to_pool(memory_, [](c10::Stream) { return false; });
    host_allocator().end_allocate_to_pool(memory_);
  }
  ~CudaGraphs() override {
    if (shares_memory_) try_to([this] { allocator::releasePool(device_.index(), memory_); });
    try_to([this] { host_allocator().release_pool(memory_); });
  }

  std::unique_ptr<Graph> make() override { return std::make_unique<CudaGraph>(memory_, device_); }

  void run(const std::function<void()>& work) override {
    if (!shares_memory_) return work();
    allocator::emptyCache();  // inside, the allocator gives nothing of other memory back
    const InMemory guard(memory_, device_);
    work();
  }

 private:
  // What is allocated for this thread's stream comes from the graphs' memory, also by the threads of autograd, which keep to that
  // stream.
  class InMemory {
   public:
    InMemory(at::cuda::MempoolId_t memory, c10::Device device) : memory_(memory), device_(device) {
      allocator::beginAllocateToPool(device_.index(), memory_,
                                     [stream = c10::cuda::getCurrentCUDAStream(device.index()).stream()](
                                         cudaStream_t of) { return of == stream; });
    }
    ~InMemory() {
      try_to([this] { stop_allocating(memory_, device_); });
    }
    InMemory(const InMemory&) = delete;
    InMemory& operator=(const InMemory&) = delete;

   private:
    at::cuda::MempoolId_t memory_;
    c10::Device device_;
  };

  at::cuda::MempoolId_t memory_;
  c10::Device device_;
  // PYTORCH_ALLOC_CONF may choose an allocator without such pools.
  bool shares_memory_ = allocator::name() == std::string("native");
};

}  // namespace

std::unique_ptr<Graphs> graphs_of(c10::Device device) {
  return device.is_cuda() ? std::make_unique<CudaGraphs>(device) : nullptr;
}

bool is_recording() { return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None; }

void use_recordable_stream(c10::Device device) {
  if (!device.is_cuda() ||
      c10::cuda::getCurrentCUDAStream(device.index()) != c10::cuda::getDefaultCUDAStream(device.index()))
    return;
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
}
#else
std::unique_ptr<Graphs> graphs_of(c10::Device) { return nullptr; }

bool is_recording() { return false; }

void use_recordable_stream(c10::Device) {}
#endif

}  // namespace gpt::device
