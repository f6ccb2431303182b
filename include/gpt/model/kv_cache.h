// What a model remembers of texts that it goes on with, and what comes next of each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace gpt {

// Keys and values of past positions of several texts, each in a slot that is filled up to a length of its own: one pair for each layer,
// (slots, kv heads, capacity, D).
struct KvCache {
  std::vector<at::Tensor> keys, values;
  std::vector<int64_t> lengths;  // of the slots
  int64_t capacity() const { return keys.empty() ? 0 : keys.front().size(2); }
};

// What a text goes on with after that which its slot of a cache holds.
struct NextTokens {
  int64_t slot;
  std::span<const int32_t> ids;
};

}  // namespace gpt
