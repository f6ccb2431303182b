// The texts that a pass of generation goes on with, as attention computes them: what is in a cache, and what comes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "gpt/model/kv_cache.h"
#include "gpt/ops/cached_attention.h"

namespace gpt {

// Texts in neighbouring slots of equal length, which go on with equally many tokens: attention computes them together.
struct CachedTexts {
  int64_t slot, count;   // the first of so many slots
  int64_t past, tokens;  // of each text: what its slot holds, and what comes
  int64_t first;         // the row of the first of these tokens
};

// The texts that a pass goes on with, as attention computes them.
struct TextsOfPass {
  std::vector<ops::CachedTokens>
      few;  // on a CPU: those of few tokens, whatever their lengths; all, where queries choose blocks
  std::vector<CachedTexts> groups;  // all others
};

TextsOfPass arranged(std::span<const NextTokens> texts, const KvCache& cache);

// (count, heads, tokens, D) of x (1, tokens of all texts, heads, D).
at::Tensor of_texts(const at::Tensor& x, const CachedTexts& texts);

// What of a layer's keys or values these texts look at, the new ones among them: (count, kv heads, past + tokens, D).
at::Tensor extended(const at::Tensor& cached, const CachedTexts& texts, const at::Tensor& x);

}  // namespace gpt
