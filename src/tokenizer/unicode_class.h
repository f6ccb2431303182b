// What the split patterns distinguish in a character: \p{L}, \p{N}, \s (White_Space) or none of them, as of Unicode 16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpt::unicode {

enum class CharacterClass : uint8_t { other, letter, number, space };

// Two levels: the page of 256 characters, shared by equal ones, then two bits per character.
extern const size_t kClassPageCount;  // nothing but `other` after the last page
extern const uint8_t kClassPages[];
extern const uint64_t kClasses[];

inline CharacterClass character_class(char32_t value) {
  const size_t page = value >> 8;
  if (page >= kClassPageCount) return CharacterClass::other;
  const uint64_t word = kClasses[kClassPages[page] * 8 + (value >> 5 & 7)];
  return static_cast<CharacterClass>(word >> 2 * (value & 31) & 3);
}

}  // namespace gpt::unicode
