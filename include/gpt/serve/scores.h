// Log probabilities of tokens, in float32, from the logits as the model gave them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "gpt/serve/text_event.h"

namespace gpt::serve {

// Scores of the tokens that came after the logits (N, V): N of them, each with the `top` likeliest. Throws gpt::Error(numerics) for logits
// that are not finite.
std::vector<TokenScore> score_tokens(const at::Tensor& logits, std::span<const int32_t> tokens, int64_t top);

}  // namespace gpt::serve
