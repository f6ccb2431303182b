// Where no token lies across the border of two characters, whatever is around them: a piece can be cut there before it is
// merged. Texts in scripts without spaces have long pieces, which hardly recur, but their parts do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::tokenizer {

class PieceJoints {
 public:
  explicit PieceJoints(std::span<const std::string> tokens);

  // The end of the part of `piece` that starts at `begin`: the piece's own end, or a border that no token lies across.
  size_t part_end(std::string_view piece, size_t begin) const;

 private:
  bool may_join(std::string_view piece, size_t before, size_t border) const;
  void add(std::string_view token, size_t border);

  // Sets of hashes, so that some borders seem to be joined that are not. The first has what is ahead of a border, the second
  // that with what is behind: a character, or its first byte where the token ends within it.
  std::vector<uint64_t> joined_;
  // The bytes at either side of the border, for tokens that begin within the character ahead of it.
  std::vector<uint64_t> bytes_joined_;
};

}  // namespace gpt::tokenizer
