// Tensor parallelism: the operators of a model of which each process of a group has a part (layout/cut.h). The model itself does not know
// of the others: these operators add up, over the group, what the parts of a layer give.
//
//   forward    after the embedding, and after the output products of attention and MLP: sums of (B, T, C)
//   backward   of what each normalization gives to the products behind it, the head among them: sums of (B, T, C)
//   head       four numbers for each token and process: the largest logit, the sum of exponentials, the target's logit, the logits' sum
//
// What a process has whole (normalizations, learned positions, biases behind a sum) gets the same gradients in all of them. Sums have the
// type of what is summed; 16-bit values are added in float32.
#pragma once

#include <memory>

#include "gpt/config/model_config.h"
#include "gpt/distributed/communicator.h"
#include "gpt/layout/cut.h"
#include "gpt/ops/operators.h"

namespace gpt {

// For GPT with the part {group->rank(), group->size()} of `model`, which has all sizes of the whole one. All processes of the group must
// compute alike, on devices of one kind, since they take part in each other's sums. `inner` itself in a group of one.
ops::SharedOperators tensor_parallel(ops::SharedOperators inner, std::shared_ptr<distributed::Communicator> group,
                                     const ModelConfig& model);

// Bytes of a value of what products give, and of the residual stream.
struct StreamBytes {
  double product = 4, stream = 4;
};

// Bytes that a process with such a part of `model` sends for a micro-batch of so many tokens, forward and backward, to those that have the
// other parts of its stage. `recomputed`: the output products of attention are computed again (gradient_checkpointing from selective on).
double bytes_of_tensor_sums(const ModelConfig& model, const ModelPart& part, double tokens, const StreamBytes& value,
                            bool recomputed);

}  // namespace gpt
