#include "block_walk.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "gpt/model/gradient_mark.h"

namespace gpt::model::transformer {
namespace {

// A block with gradient checkpointing of what comes after attention, or of all; pass.checkpointing says which.
Stream recomputed(const Block& block, const Stream& in, const Pass& pass, bool draws) {
  const auto inner_pass = [pass](BodyRun run) {
    Pass inner = pass;
    inner.checkpointing = GradientCheckpointing::none, inner.run = run;
    return inner;
  };
  if (pass.checkpointing == GradientCheckpointing::block) {
    const auto body = [&block, inner_pass](const std::vector<at::Tensor>& x, BodyRun run) {
      const Pass inner = inner_pass(run);
      return joined(block({x[0], {}}, inner), block.any_norm(), inner);
    };
    return {recompute_in_backward(body, {in.x}, draws), {}};
  }
  const auto [x, first] = block.enter(block.ln_1, in, pass);
  const at::Tensor attended = block.attn(first, pass);
  const auto body = [&block, inner_pass](const std::vector<at::Tensor>& inputs, BodyRun run) {
    const Pass inner = inner_pass(run);
    return joined(block.after_attention(inputs[0], inputs[1], inner), block.any_norm(), inner);
  };
  return {recompute_in_backward(body, {x, attended}, draws), {}};
}

}  // namespace

BlockWalk::BlockWalk(const Transformer& model, const Pass& pass, bool draws, LayerWeights* weights,
                     ActivationSwap* swap, const std::function<void(int64_t layer)>& done)
    : model_(model),
      pass_(pass),
      draws_(draws),
      weights_(weights),
      swap_(swap),
      done_(weights ? weights->in_backward(done) : done) {
  if (swap_) done_ = swap_->in_backward(std::move(done_));
}

at::Tensor BlockWalk::marked(const at::Tensor& x, int64_t layer) const {
  if (!done_ || !at::GradMode::is_enabled()) return x;
  return mark_gradient(x, [done = done_, layer] { done(layer); });
}

Stream BlockWalk::through(Stream stream, int64_t begin, int64_t end) const {
  const bool is_recomputed = pass_.checkpointing >= GradientCheckpointing::selective,
             is_swapped = swap_ && at::GradMode::is_enabled();
  for (int64_t layer = begin; layer < end; ++layer) {
    const Block& block = model_.h[static_cast<size_t>(layer - model_.layers.begin)];
    stream.x = marked(stream.x, layer);
    if (weights_) weights_->before_forward(layer);
    const auto compute = [&] {
      stream = is_recomputed ? recomputed(block, stream, pass_, draws_) : block(stream, pass_);
    };
    is_swapped ? swap_->in_forward(layer, pass_.rotary[block.attn.rotation], compute) : compute();
  }
  if (model_.has_end() && end == model_.layers.end) stream.x = marked(stream.x, end);
  return stream;
}

}  // namespace gpt::model::transformer
