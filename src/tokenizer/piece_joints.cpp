#include "piece_joints.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gpt/core/utf8.h"

namespace gpt::tokenizer {
namespace {

bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

void set(std::vector<uint64_t>& bits, uint64_t place) { bits.data()[place / 64] |= uint64_t{1} << place % 64; }

bool has(const std::vector<uint64_t>& bits, uint64_t place) { return bits.data()[place / 64] >> place % 64 & 1; }

uint64_t pair_of_bytes(char before, char behind) {
  return static_cast<uint64_t>(static_cast<unsigned char>(before)) << 8 | static_cast<unsigned char>(behind);
}

// As its first byte says.
size_t bytes_of_character(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The bytes text[begin, begin + count), at most four, as a number.
uint64_t number_of(std::string_view text, size_t begin, size_t count) {
  uint32_t number = 0;
  if (begin + sizeof number <= text.size()) {
    std::memcpy(&number, text.data() + begin, sizeof number);
    return number & ~uint32_t{0} >> 8 * (sizeof number - count);
  }
  std::memcpy(&number, text.data() + begin, count);
  return number;
}

// The number of the bit for what is ahead of a border, and what is behind it; no character is 0xFF.
uint64_t place_of(const std::vector<uint64_t>& bits, uint64_t before, uint64_t behind = 0xFF) {
  const uint64_t hash = (before << 32 | behind) * 0x9E3779B97F4A7C15u;
  return (hash >> 32) & (64 * bits.size() - 1);
}

}  // namespace

PieceJoints::PieceJoints(std::span<const std::string> tokens)
    : joined_(std::bit_ceil(std::max<size_t>(8 * tokens.size(), 1 << 10)) / 64), bytes_joined_((1 << 16) / 64) {
  for (const std::string& token : tokens) {
    for (size_t border = 1; border < token.size(); ++border) {
      const bool between_ascii = is_ascii(token[border - 1]) && is_ascii(token[border]);
      if (!between_ascii && utf8::begins_character(token[border])) add(token, border);
    }
  }
}

void PieceJoints::add(std::string_view token, size_t border) {
  const size_t start = utf8::last_character(token.substr(0, border)), bytes = bytes_of_character(token[border]);
  if (!utf8::begins_character(token[start])) return set(bytes_joined_, pair_of_bytes(token[border - 1], token[border]));
  if (border - start > 4) return;  // no character: may_join() cuts none off
  const uint64_t before = number_of(token, start, border - start);
  set(joined_, place_of(joined_, before));
  set(joined_, place_of(joined_, before, number_of(token, border, border + bytes > token.size() ? 1 : bytes)));
}

// Whether a token lies across `border`, ahead of which a character begins at `before`.
bool PieceJoints::may_join(std::string_view piece, size_t before, size_t border) const {
  const size_t bytes = bytes_of_character(piece[border]);
  if (border - before > 4 || border + bytes > piece.size()) return true;
  if (has(bytes_joined_, pair_of_bytes(piece[border - 1], piece[border]))) return true;
  const uint64_t left = number_of(piece, before, border - before);
  if (!has(joined_, place_of(joined_, left))) return false;
  return has(joined_, place_of(joined_, left, number_of(piece, border, bytes))) ||
         has(joined_, place_of(joined_, left, number_of(piece, border, 1)));
}

size_t PieceJoints::part_end(std::string_view piece, size_t begin) const {
  const char* const bytes = piece.data();
  for (size_t before = begin, border = begin + 1; border < piece.size(); ++border) {
    if (!utf8::begins_character(bytes[border])) continue;
    const bool between_ascii = is_ascii(bytes[border - 1]) && is_ascii(bytes[border]);
    if (!between_ascii && !may_join(piece, before, border)) return border;
    before = border;
  }
  return piece.size();
}

}  // namespace gpt::tokenizer
