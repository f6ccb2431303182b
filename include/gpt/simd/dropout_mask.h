// A dropout mask that is not stored: which elements are kept follows from a key and their places.
#pragma once

#include <cstdint>

namespace gpt::ops::cpu {

struct DropoutMask {
  // An element is kept where its 16 random bits, which the key, the site and its place determine, are below `kept_of_65536`.
  uint64_t key = 0;
  uint32_t kept_of_65536 = 65536;
  uint32_t site = 0;
  int64_t first = 0;         // the number that the first row, or the first matrix, has in the update
  int64_t of_sample = 1;     // rows, or matrices, of each sample
  int64_t first_column = 0;  // where only some columns, or heads, of the whole model are here: which is the first

  explicit operator bool() const { return kept_of_65536 < 65536; }
  int64_t number_of(int64_t sample, int64_t head) const { return first + sample * of_sample + first_column + head; }
  float factor() const { return 65536.0f / static_cast<float>(kept_of_65536); }  // what kept values are multiplied by
};

}  // namespace gpt::ops::cpu
