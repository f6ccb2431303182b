// One token from logits: temperature, then top-k, then top-p (nucleus), then a draw.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "gpt/generate/generator.h"

namespace gpt {

// Probabilities (B, V) float32 of logits (B, V) after temperature, top-k and top-p, in that order, as Hugging Face applies
// them: tokens that tie with the k-th stay, and top-p keeps the smallest set that reaches p, at least one token.
at::Tensor filtered_probabilities(const at::Tensor& logits, const SamplingConfig& config);

// Ids (B, 1) int64 from logits (B, V); -1 for a row whose logits are NaN or infinite. `generator` is of the logits' device.
// Nothing waits for the device.
at::Tensor sample(const at::Tensor& logits, const SamplingConfig& config, at::Generator& generator);

}  // namespace gpt
