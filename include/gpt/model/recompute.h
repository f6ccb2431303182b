// Gradient checkpointing (Chen et al., 2016): run a function without keeping what its backward pass needs, and run it
// again during the backward pass, with the same dropout masks and autocast, so that gradients are bit-identical.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/ops/operators.h"

namespace gpt::model {

// How often an update multiplies a token with the weights of a row: once forward, twice backward, and once more where the backward pass
// does its product again; 0 where they are none of a block's product.
int times_multiplied(const layout::ParameterRow& row, GradientCheckpointing level);

// The weights of the products in all blocks, each counted as often as an update multiplies a token with it.
double weights_multiplied(const ModelConfig& model, GradientCheckpointing level);

// Whether what is computed again draws from the device's default generator, by operators that draw so. Our dropout masks need no
// generator: they follow from their place.
bool recomputing_draws(GradientCheckpointing level, const ModelConfig& model, const ops::Draws& draws);

enum class BodyRun { first, again };

// body(inputs, run). The second run may return other values, as long as its backward pass is that of the first one.
using RecomputedBody = std::function<at::Tensor(const std::vector<at::Tensor>&, BodyRun)>;

// body(inputs, first). Gradients flow to the inputs and, directly, into the leaf parameters that `body` uses. `body` must stay
// valid until the backward pass is done. `draws`: it draws from the device's default generator, whose state is then saved, which a
// CUDA graph cannot record.
at::Tensor recompute_in_backward(const RecomputedBody& body, const std::vector<at::Tensor>& inputs, bool draws);

}  // namespace gpt::model
