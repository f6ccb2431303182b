// One token from logits: the penalty on repetition, temperature, top-k, top-p (nucleus) and min-p, in Hugging Face's order
// and with its rules, then a draw.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "gpt/generate/sampling_config.h"

namespace gpt::generate {

// CTRL's rule (Keskar et al., 2019): of every token that occurs in `context` (B, T) int64, a positive logit is divided by
// `penalty` and a negative one multiplied by it, once however often the token occurs. (B, V) float32 of logits (B, V).
at::Tensor penalize_repetition(const at::Tensor& logits, const at::Tensor& context, double penalty);

// Probabilities (B, V) float32 of logits (B, V) after temperature, top-k, top-p and min-p, in that order: tokens that tie
// with the k-th stay, top-p keeps the smallest set that reaches p, at least one token, and min-p those whose probability is
// at least min_p times the largest.
at::Tensor filtered_probabilities(const at::Tensor& logits, const SamplingConfig& config);

// Ids (B, 1) int64 from logits (B, V); -1 for a row whose logits are NaN or infinite. `generator` is of the logits' device.
// Nothing waits for the device.
at::Tensor sample(const at::Tensor& logits, const SamplingConfig& config, at::Generator& generator);

}  // namespace gpt::generate
