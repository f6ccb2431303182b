// How the stages of a model (pipeline parallelism) compute a forward pass of inference together: each gets what the one before gives, and
// the last one tells all what comes out. Training sends more than that (parallel/stage_passes.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "gpt/distributed/communicator.h"

namespace gpt::model {

class StageLink {
 public:
  explicit StageLink(distributed::Pipeline pipeline) : pipeline_(std::move(pipeline)) {}

  // Receives x from the stage before.
  void receive(const at::Tensor& x) const { pipeline_.before.forward->begin_broadcast(x, Boundary::kEarlier)(); }
  // Sends x to the stage behind, which need not have come so far; but it must have got what was sent before.
  void send(const at::Tensor& x) {
    if (is_there_) is_there_();
    is_there_ = pipeline_.after.forward->begin_broadcast(x, Boundary::kEarlier);
  }
  // x of the last stage, at all of them.
  void share(const at::Tensor& x) const { pipeline_.stages->begin_broadcast(x, pipeline_.stages->size() - 1)(); }

 private:
  using Boundary = distributed::Boundary;

  const distributed::Pipeline pipeline_;
  std::function<void()> is_there_;  // waits until what was sent last is
};

}  // namespace gpt::model
