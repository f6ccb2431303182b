// The product with the head and the cross entropy of its logits, by chunks of rows: the logits of all rows never exist at once.
//
// Where gradients are wanted, the forward pass computes them too, while a chunk's logits are at hand: they become their own
// gradients in place, and from them come the gradients of x and of the head. So the forward pass must know the gradient that the
// loss will get.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "gpt/ops/operators.h"
#include "gpt/parameters/parameters.h"

namespace gpt::ops {

struct HeadShape {
  int64_t padded_vocabulary, columns;
};

// How many of `rows`, whose logits are of `type`, are computed at once: the largest equal chunks within the limit. Where that is 0, as
// many as ClassifierOptions says, on a GPU the number at which the chunks leave the fewest of its multiprocessors idle, a multiple of
// 128. multiprocessors: of the GPU; 0 on a CPU.
int64_t classifier_chunk_rows(int64_t rows, HeadShape head, at::ScalarType type, int64_t limit,
                              int64_t multiprocessors);

// The mean cross entropy, a float32 scalar, of x (..., C) with the head (Vp, C) against `targets` int64, one for each row of x.
// float32, or 16 bits (on a CPU bfloat16) under autocast or where x and the compute_value() of the head have them; sums of logits
// are float32. With options.teacher, 1 - weight times that, and weight times the divergence KL(teacher || model) of each row, at the
// temperature and times its square; the teacher's logits of a chunk exist beside the model's.
//
//   upstream: a float32 scalar on the same device: what the backward pass will be given as the gradient of the loss while autograd
//     records; undefined: 1. The head's gradient, times this, is added to by the forward pass already; the backward pass returns
//     that of x. On a CPU it throws when it is given something else; on a GPU nothing checks this.
//
// Rows whose target is kMaskedTarget have no loss and no gradients; on a CPU they do not go through the head.
//
// Differentiable once. Throws c10::Error for shapes or types that do not fit and, on a CPU, for another target outside the vocabulary;
// on a GPU that is a device assertion.
at::Tensor classifier_loss(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                           const ClassifierOptions& options, const at::Tensor& upstream = {});

// The cross entropy of each target by itself, (N) float32, without gradients; 0 where it is masked.
at::Tensor classifier_losses(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options);

}  // namespace gpt::ops
