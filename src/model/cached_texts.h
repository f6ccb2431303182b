// The texts that a pass of generation goes on with, as attention computes them: what is in a cache, and what comes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "gpt/model/kv_cache.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/cached_attention.h"
#include "gpt/ops/heads.h"

namespace gpt::model {

// Texts in neighbouring slots of equal length, which go on with equally many tokens: attention computes them together.
struct CachedTexts {
  int64_t slot, count;   // the first of so many slots
  int64_t past, tokens;  // of each text: what its slot holds, and what comes
  int64_t first;         // the row of the first of these tokens
};

// The texts that a pass goes on with, as attention computes them.
struct TextsOfPass {
  // On a CPU those of few tokens, whatever their lengths; where queries choose blocks, all.
  std::vector<ops::CachedTokens> few;
  std::vector<CachedTexts> groups;  // the others
};

TextsOfPass arranged(std::span<const NextTokens> texts, const KvCache& cache);

// What the tokens that come see of a layer's keys and values, (slots, kv heads, capacity, D), into which theirs are put: (1, tokens of the
// texts, H D).
at::Tensor attend_to_past(const ops::Heads& heads, const at::Tensor& keys, const at::Tensor& values,
                          const CachedTexts& texts, const ops::AttentionSpec& spec);

}  // namespace gpt::model
