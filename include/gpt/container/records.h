// What a container consists of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpt {

// Printable ASCII without quotes and backslashes, each once: "data.pkl", "data/0", ...
struct RecordPlan {
  std::string name;
  uint64_t bytes;
};

// What is hashed, written and verified at a time: the bytes from `begin` to `end` of a record, at most 16 MB.
struct RecordPiece {
  size_t record;  // its number in the plan
  uint64_t begin, end;
};

}  // namespace gpt
