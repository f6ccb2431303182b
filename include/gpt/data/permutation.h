// A keyed random order of 0..size-1 with O(1) memory: a balanced Feistel network with cycle walking. The same key
// gives the same order on every machine, so a position in an epoch is two integers.
#pragma once

#include <cstdint>

namespace gpt::data {

class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);
  uint64_t operator()(uint64_t index) const;  // index < size
  uint64_t size() const { return size_; }

 private:
  uint64_t size_, key_;
  int half_bits_;
};

}  // namespace gpt::data
