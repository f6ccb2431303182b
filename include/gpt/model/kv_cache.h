// What a model remembers of texts that it goes on with, and what comes next of each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace gpt::model {

// Keys and values of past positions of several texts, each in a slot that is filled up to a length of its own: one pair for each layer,
// (slots, kv heads, capacity, D). Where queries choose blocks, also the means of the keys of those that a slot has completed, float32.
struct KvCache {
  std::vector<at::Tensor> keys = {}, values = {};
  std::vector<at::Tensor> means = {};  // (slots, kv heads, blocks, D)
  std::vector<int64_t> lengths;        // of the slots
  int64_t attention_block = 0;         // positions of a block; 0: queries do not choose
  int64_t capacity() const { return keys.empty() ? 0 : keys.front().size(2); }
  int64_t blocks_in(int64_t positions) const { return attention_block > 0 ? positions / attention_block : 0; }
};

// What a text goes on with after that which its slot of a cache holds.
struct NextTokens {
  int64_t slot;
  std::span<const int32_t> ids;
};

// Copies the positions from `begin` to before `end` of a slot to another one, which has what is before.
void copy_positions(KvCache& cache, int64_t from, int64_t to, int64_t begin, int64_t end);

}  // namespace gpt::model
