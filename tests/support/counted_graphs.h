// A recorder for tests of recorded steps, whose replays are counted. On a GPU its graphs are real; on a CPU they do again what they
// were given.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "gpt/device/graph.h"
#include "gpt/model/gpt.h"
#include "gpt/run/recorder.h"

namespace gpt::test {

// Undoes what a replay on a GPU does not do, which is to note on the host that there are gradients.
class RepeatedCall : public Graph {
 public:
  explicit RepeatedCall(Parameters parameters) : parameters_(std::move(parameters)) {}
  void record(const std::function<void()>& work) override { work_ = work; }
  void replay() override {
    const bool had_gradient = parameters_[0].has_gradient();
    work_();
    if (!had_gradient) parameters_.clear_gradients();
  }

 private:
  Parameters parameters_;
  std::function<void()> work_;
};

class CountedGraph : public Graph {
 public:
  CountedGraph(std::unique_ptr<Graph> graph, int64_t& replays) : graph_(std::move(graph)), replays_(replays) {}
  void record(const std::function<void()>& work) override { graph_->record(work); }
  void replay() override { ++replays_, graph_->replay(); }

 private:
  std::unique_ptr<Graph> graph_;
  int64_t& replays_;
};

class CountedGraphs : public Graphs {
 public:
  CountedGraphs(const GPT& model, int64_t& replays)
      : graphs_(graphs_of(model.device())), parameters_(model.parameters()), replays_(replays) {}
  std::unique_ptr<Graph> make() override {
    return std::make_unique<CountedGraph>(graphs_ ? graphs_->make() : std::make_unique<RepeatedCall>(parameters_),
                                          replays_);
  }
  void run(const std::function<void()>& work) override { graphs_ ? graphs_->run(work) : work(); }

 private:
  std::unique_ptr<Graphs> graphs_;  // the graphs of a GPU
  Parameters parameters_;
  int64_t& replays_;
};

// Before the model is made: use_recordable_stream().
inline run::Recorder counting_recorder(const GPT& model, int64_t& replays) {
  return run::Recorder(std::make_unique<CountedGraphs>(model, replays));
}

}  // namespace gpt::test
