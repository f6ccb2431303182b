// The micro-batches of an update on their way through a stage of the model (pipeline parallelism), and what travels between it and its
// neighbours: activations (B, T, C) forward and their gradients back, in the type in which the model computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "gpt/batches/data_loader.h"
#include "gpt/distributed/communicator.h"
#include "gpt/model/gpt.h"

namespace gpt::parallel {

struct PassingBatch {
  batches::Batch batch;             // (B, T), at every stage
  at::Tensor share, dropout_place;  // what its mean loss counts in the update, and what masks follow from (LossOptions)
  std::optional<int64_t> attention_window;
  size_t lane = 0;       // in which it is added up
  bool is_last = false;  // of the update, in this process
};

// Micro-batches enter, pass forward and pass backward in the same order; a stage up to which nothing is trained computes nothing backward. Of
// both passes what a stage takes begins to be received before the one that is computed then, and what it gives is sent while it computes what
// follows.
class StagePasses {
 public:
  // Computes what the stage gives, or at the last stage the loss, of what it takes: ids at the first stage, and otherwise a leaf.
  using Forward = std::function<at::Tensor(const PassingBatch& passing, const at::Tensor& in)>;
  // Computes the gradient of what the stage takes, from that of what it gave, which is undefined at the last stage.
  using Backward = std::function<void(const PassingBatch& passing, const at::Tensor& out, const at::Tensor& gradient)>;

  // The model must outlive it.
  StagePasses(const model::GPT& model, distributed::Pipeline pipeline)
      : model_(model), pipeline_(std::move(pipeline)) {}

  void enter(PassingBatch next);
  void forward(const Forward& compute);
  void expect_gradient();  // of the next one whose gradient has not been expected
  void backward(const Backward& compute);
  void end_update();  // all have passed; waits until the last gradient is with the stage before

 private:
  struct Travelling {
    PassingBatch passing;
    at::Tensor in = {}, out = {}, gradient = {};  // the last one: of out
    std::function<void()> in_is_there = {}, out_is_sent = {}, gradient_is_there = {};
  };
  at::Tensor activations_of(const Travelling& batch) const;

  const model::GPT& model_;
  const distributed::Pipeline pipeline_;
  std::deque<Travelling> on_their_way_;
  size_t forward_ = 0, expected_ = 0;  // how many of them have passed forward, and expect their gradient
  std::function<void()> gradient_is_sent_ = {};
};

}  // namespace gpt::parallel
