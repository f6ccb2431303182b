// Pipeline parallelism: which blocks each stage of a model has. The first one has the embeddings too, the last one what follows the blocks,
// and where the head is tied, the table of the first one once more.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/config/model_config.h"

namespace gpt::layout {

// Blocks [begin, end) of a model.
struct LayerSpan {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// Whether a stage sends gradients to the one before, because something is trained there or earlier. `first_trained`: the layer, as
// first_trained_layer() has it.
inline bool passes_gradients_on(int64_t stage, const LayerSpan& own, int64_t first_trained) {
  return stage > 0 && first_trained < own.begin;
}

// At least one block for each of so many stages, of which the model must have as many: so that the slowest stage takes as little as it can,
// and the others are as even as they can be beside it. `model.vocab_size` must be set.
std::vector<LayerSpan> stages_of(const ModelConfig& model, int64_t stages);

// Floating-point operations of a token in each of these stages, forward and backward, by the rule of flops_per_token(). Embeddings count
// with the rows that are looked up.
std::vector<double> stage_costs(const ModelConfig& model, const std::vector<LayerSpan>& stages);

}  // namespace gpt::layout
