#include "gpt/parallel/stage_passes.h"

#include <utility>

namespace gpt::parallel {

using distributed::Boundary;

at::Tensor StagePasses::activations_of(const Travelling& batch) const {
  const at::Tensor& ids = batch.passing.batch.inputs;
  return model_.stage_input(ids.size(0), ids.size(1));
}

void StagePasses::enter(PassingBatch next) {
  Travelling& entering = on_their_way_.emplace_back(std::move(next));
  if (pipeline_.is_first()) return;
  entering.in = activations_of(entering);
  entering.in_is_there = pipeline_.before.forward->begin_broadcast(entering.in, Boundary::kEarlier);
}

void StagePasses::forward(const Forward& compute) {
  Travelling& passing = on_their_way_.at(forward_++);
  if (pipeline_.is_first()) {
    passing.out = compute(passing.passing, passing.passing.batch.inputs);
  } else {
    passing.in_is_there();
    passing.out = compute(passing.passing, passing.in.requires_grad_(model_.passes_gradients_on()));
    if (!model_.passes_gradients_on()) passing.in.reset();  // or else its gradient is asked for
  }
  if (!pipeline_.is_last())
    passing.out_is_sent = pipeline_.after.forward->begin_broadcast(passing.out.detach(), Boundary::kEarlier);
}

void StagePasses::expect_gradient() {
  Travelling& expecting = on_their_way_.at(expected_++);
  if (pipeline_.is_last() || !model_.is_passed_backward()) return;
  expecting.gradient = activations_of(expecting);
  expecting.gradient_is_there = pipeline_.after.backward->begin_broadcast(expecting.gradient, Boundary::kLater);
}

void StagePasses::backward(const Backward& compute) {
  Travelling passing = std::move(on_their_way_.front());
  on_their_way_.pop_front();
  --forward_, --expected_;
  if (!pipeline_.is_last()) passing.out_is_sent();
  if (!model_.is_passed_backward()) return;
  if (!pipeline_.is_last()) passing.gradient_is_there();
  compute(passing.passing, passing.out, passing.gradient);
  if (!model_.passes_gradients_on()) return;
  if (gradient_is_sent_) gradient_is_sent_();
  gradient_is_sent_ = pipeline_.before.backward->begin_broadcast(passing.in.grad().contiguous(), Boundary::kLater);
}

void StagePasses::end_update() {
  TORCH_CHECK(on_their_way_.empty(), "StagePasses: ", on_their_way_.size(), " micro-batches are still on their way");
  if (const auto wait = std::exchange(gradient_is_sent_, nullptr)) wait();
}

}  // namespace gpt::parallel
