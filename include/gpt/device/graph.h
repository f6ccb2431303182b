// CUDA graphs: work of a GPU that is recorded once and then launched as a whole, so that the host no longer launches its kernels
// one by one.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace gpt::device {

class Graph {
 public:
  virtual ~Graph() = default;
  // Calls `work`, whose kernels are noted but not run. Throws c10::Error where it does what cannot be recorded, such as waiting
  // for the device; then nothing has run and nothing is recorded.
  virtual void record(const std::function<void()>& work) = 0;
  virtual void replay() = 0;  // with the random numbers that `work` would draw now
};

// Graphs that share their temporary memory. So a tensor that is made while one is recorded must be gone when it has been recorded,
// and they are replayed one after another.
class Graphs {
 public:
  virtual ~Graphs() = default;
  virtual std::unique_ptr<Graph> make() = 0;
  // Calls `work` without a graph, in the memory of the graphs, which would otherwise be taken a second time. Once a graph has been
  // recorded, a tensor that is made here must be gone at the end too.
  virtual void run(const std::function<void()>& work) = 0;
};

// Null on a CPU. Must outlive the graphs that it makes.
std::unique_ptr<Graphs> graphs_of(c10::Device device);

// Whether what the calling thread launches on a GPU is being recorded.
bool is_recording();

// From now on the calling thread's work on a GPU goes to a stream other than the default one, which cannot be recorded; autograd
// keeps to the stream on which it met a parameter first. Does nothing on a CPU or when called again.
void use_recordable_stream(c10::Device device);

}  // namespace gpt::device
