// A forward pass through the blocks of a stage, and what goes on around each of them: weights of other processes arrive, what it keeps for
// its backward pass leaves the device or is computed again, and that backward pass says how far it has come.
#pragma once

#include <cstdint>
#include <functional>

#include "gpt/model/activation_swap.h"
#include "gpt/model/layer_weights.h"
#include "transformer.h"

namespace gpt::model::transformer {

class BlockWalk {
 public:
  // `draws`: as recompute_in_backward() has it. `weights`, `swap`: null, unless weights come from others, and activations wait in the host's
  // memory. `done`: as LossOptions::layer_done. All must stay for the pass, but for `done`.
  BlockWalk(const Transformer& model, const Pass& pass, bool draws, LayerWeights* weights, ActivationSwap* swap,
            const std::function<void(int64_t layer)>& done);

  // Through the blocks [begin, end), layers of the whole model.
  Stream through(Stream stream, int64_t begin, int64_t end) const;
  // x; where a backward pass comes to it, it is done with this layer and all that come after it.
  at::Tensor marked(const at::Tensor& x, int64_t layer) const;

 private:
  const Transformer& model_;
  const Pass& pass_;
  const bool draws_;
  LayerWeights* const weights_;
  ActivationSwap* const swap_;
  std::function<void(int64_t layer)> done_;  // what all of them have to know; may be empty
};

}  // namespace gpt::model::transformer
