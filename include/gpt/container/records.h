// What a container consists of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gpt::container {

// Printable ASCII without quotes and backslashes, each once: "data.pkl", "data/0", ...
struct RecordPlan {
  std::string name;
  uint64_t bytes;
};

// What is hashed, written and verified at a time: the bytes from `begin` to `end` of a record.
inline constexpr uint64_t kLongestPiece = 16 << 20;
struct RecordPiece {
  size_t record;  // its number in the plan
  uint64_t begin, end;
};

// What a container says of the bytes of a piece.
struct PieceSums {
  std::array<char, 32> hash;  // the digits of XXH3-128
  uint32_t crc;               // CRC-32
};

}  // namespace gpt::container
