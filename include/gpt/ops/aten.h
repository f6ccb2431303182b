// The model's operators as ATen has them, each with the interface of ours. Our own use them on devices for which they have no
// kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "gpt/ops/operators.h"
#include "gpt/ops/rotary.h"
#include "gpt/parameters/parameters.h"

namespace gpt::ops::aten {

at::Tensor embedding(const at::Tensor& ids, const Parameter& table, const Parameter& positions, int64_t offset,
                     double dropout);
Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch, double dropout);
// Always keeps its input.
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias, ProductInput input);
std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first, const LinearLayer& second,
                                              ProductInput input);
at::Tensor linear_gelu(const at::Tensor& x, const Parameter& weight, const Parameter& bias, ProductInput input);
at::Tensor linear_for_backward(const at::Tensor& x, const Parameter& weight, const Parameter& bias);
Heads split_heads(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary);
// scaled_dot_product_attention by the kernel that LibTorch chooses: (B, T, H D).
at::Tensor attention(const Heads& heads, double dropout);
at::Tensor attention(at::Tensor qkv, const AttentionSpec& spec, const RotaryTables& rotary);
at::Tensor activate(Activation activation, const at::Tensor& x);
at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in, double dropout);
// All logits at once; `upstream` is not needed.
at::Tensor classifier_loss(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                           const ClassifierOptions& options, const at::Tensor& upstream);
at::Tensor classifier_losses(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                             const ClassifierOptions& options);

}  // namespace gpt::ops::aten

namespace gpt::ops {

SharedOperators aten_operators();

}  // namespace gpt::ops
