// A recorder for tests of recorded steps, whose replays are counted. On a GPU its graphs are real; on a CPU they do again what they
// were given. On both, a tensor that outlives recorded work, or work between replays, makes the test fail: it lies in the memory of
// the graphs, which the next replay overwrites.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "gpt/device/device.h"
#include "gpt/device/graph.h"
#include "gpt/model/gpt.h"
#include "gpt/run/recorder.h"
#include "support/allocations.h"

namespace gpt::test {

inline void expect_nothing_left(at::Device device, const std::function<void()>& work) {
  int64_t left = 0;
  if (device.is_cpu()) {
    const Allocations allocations;
    work();
    left = allocations.left();
  } else {
    const int64_t before = device::tensor_bytes(device);
    work();
    left = device::tensor_bytes(device) - before;
  }
  EXPECT_EQ(left, 0) << "bytes of tensors that the next replay overwrites";
}

// Undoes what a replay on a GPU does not do, which is to note on the host that there are gradients.
class RepeatedCall : public device::Graph {
 public:
  explicit RepeatedCall(parameters::Parameters parameters) : parameters_(std::move(parameters)) {}
  void record(const std::function<void()>& work) override { work_ = work; }
  void replay() override {
    const bool had_gradient = parameters_[0].has_gradient();
    expect_nothing_left(at::kCPU, work_);
    if (!had_gradient) parameters_.clear_gradients();
  }

 private:
  parameters::Parameters parameters_;
  std::function<void()> work_;
};

class CountedGraph : public device::Graph {
 public:
  CountedGraph(std::unique_ptr<device::Graph> graph, int64_t& replays) : graph_(std::move(graph)), replays_(replays) {}
  void record(const std::function<void()>& work) override { graph_->record(work); }
  void replay() override { ++replays_, graph_->replay(); }

 private:
  std::unique_ptr<device::Graph> graph_;
  int64_t& replays_;
};

class CountedGraphs : public device::Graphs {
 public:
  CountedGraphs(const model::GPT& model, int64_t& replays)
      : graphs_(device::graphs_of(model.device())),
        parameters_(model.parameters()),
        replays_(replays),
        replays_before_(replays) {}
  std::unique_ptr<device::Graph> make() override {
    return std::make_unique<CountedGraph>(graphs_ ? graphs_->make() : std::make_unique<RepeatedCall>(parameters_),
                                          replays_);
  }
  void run(const std::function<void()>& work) override {
    const auto run = [&] { graphs_ ? graphs_->run(work) : work(); };
    replays_ > replays_before_ ? expect_nothing_left(parameters_.device(), run) : run();
  }

 private:
  std::unique_ptr<device::Graphs> graphs_;  // the graphs of a GPU
  parameters::Parameters parameters_;
  int64_t& replays_;
  const int64_t replays_before_;  // of other runs
};

// Before the model is made: use_recordable_stream().
inline run::Recorder counting_recorder(const model::GPT& model, int64_t& replays) {
  return run::Recorder(std::make_unique<CountedGraphs>(model, replays));
}

}  // namespace gpt::test
