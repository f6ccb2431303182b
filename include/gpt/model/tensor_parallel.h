// Tensor parallelism: the operators of a model of which each process of a group has a part (layout/cut.h). The model itself does not know
// of the others: these operators add up, over the group, what the parts of a layer give.
//
// In a pass that autograd records, each process also has a part of the rows of the residual stream (sequence parallelism: Korthikanti et al.
// (2022), "Reducing Activation Recomputation in Large Transformer Models"). The B T rows, one for each token, are dealt out one behind the
// other, as many to each process; what is missing in the end is padding. Such a part (rows, 1, C) is all that is normalized, dropped out
// and kept of the stream.
//
//   forward    embedding, and output products of attention and MLP: each process gets the sums of its rows, and adds the bias to them
//              normalizations: what they give goes to all before the products behind them, the head among them
//   backward   each of these the other way round: of what a normalization gives each process gets the sums of its rows' gradients, and the
//              gradients of what an output product gives go to all; beside them the gradients of a normalization's weight and bias,
//              which follow from all rows, are added up
//   head       four numbers for each token and process: the largest logit, the sum of exponentials, the target's logit, the logits' sum
//
// Inference has all rows in each process, since a generated token is one: sums of (B, T, C) behind the embedding and the output products.
//
// What a process has whole (normalizations, learned positions, biases behind a sum) gets the same gradients in all of them. Sums have the
// type of what is summed; 16-bit values are added in float32.
#pragma once

#include <cstdint>
#include <memory>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/distributed/communicator.h"
#include "gpt/layout/cut.h"
#include "gpt/ops/operators.h"

namespace gpt::model {

// For GPT with the part {group->rank(), group->size()} of `model`, which has all sizes of the whole one. All processes of the group must
// compute alike, on devices of one kind, since they take part in each other's sums. `inner` itself in a group of one.
ops::SharedOperators tensor_parallel(ops::SharedOperators inner, std::shared_ptr<distributed::Communicator> group,
                                     const ModelConfig& model);

// Operators of tensor_parallel() for a pass over B sequences of T tokens that autograd records: each process has a part of the rows.
ops::SharedOperators dividing_rows(const ops::SharedOperators& operators, int64_t B, int64_t T);

// Bytes of a value of what products give, and of the residual stream.
struct StreamBytes {
  double product = 4, stream = 4;
};

// What a process sends to those that have the other parts of its stage: bytes, and how many sums they make up. A gather, and a sum whose parts
// stay where they are, are half of one.
struct TensorSums {
  double bytes = 0, count = 0;
};

// Sums of a process with this part of `model`, for a micro-batch of so many tokens, forward and backward. With gradient_checkpointing from
// norm on what normalizations give goes to all again in the backward pass, and from selective on the output products of attention are added
// up again.
TensorSums tensor_sums(const ModelConfig& model, const layout::ModelPart& part, int64_t tokens,
                       const StreamBytes& value, GradientCheckpointing level);

}  // namespace gpt::model
