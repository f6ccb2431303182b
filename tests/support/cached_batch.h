// Several texts of equal length that go on with equally many tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "gpt/model/gpt.h"

namespace gpt::test {

// GPT::forward_cached() with ids (B, t) for the first B slots.
inline at::Tensor forward_cached(const model::GPT& model, const at::Tensor& ids, model::KvCache& cache) {
  const at::Tensor tokens = ids.cpu().to(at::kInt).contiguous();
  const auto* const first = tokens.const_data_ptr<int32_t>();
  const auto t = static_cast<size_t>(ids.size(1));
  std::vector<model::NextTokens> texts;
  for (int64_t slot = 0; slot < ids.size(0); ++slot) texts.push_back({slot, {first + slot * ids.size(1), t}});
  return model.forward_cached(texts, cache);
}

}  // namespace gpt::test
