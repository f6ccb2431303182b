// What the split patterns distinguish in a character, as of Unicode 16: \p{L} and the case of a letter, \p{M}, \p{N}, \s (White_Space) or none
// of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpt::unicode {

enum class CharacterClass : uint8_t { other, letter, number, space };

// The class of a character, in its lowest two bits, and what else is known of it. `letter` has no case (Lm, Lo), `upper` is Lu or Lt.
enum class CharacterKind : uint8_t { other, letter, number, space, mark, upper, lower = 9 };

constexpr CharacterClass class_of(CharacterKind kind) {
  return static_cast<CharacterClass>(static_cast<uint8_t>(kind) & 3);
}

// Two levels: the page of 256 characters, shared by equal ones, then four bits per character.
extern const size_t kKindPageCount;  // nothing but `other` after the last page
extern const uint8_t kKindPages[];
extern const uint64_t kKinds[];

inline CharacterKind character_kind(char32_t value) {
  const size_t page = value >> 8;
  if (page >= kKindPageCount) return CharacterKind::other;
  const uint64_t word = kKinds[kKindPages[page] * 16 + (value >> 4 & 15)];
  return static_cast<CharacterKind>(word >> 4 * (value & 15) & 15);
}

inline CharacterClass character_class(char32_t value) { return class_of(character_kind(value)); }

}  // namespace gpt::unicode
