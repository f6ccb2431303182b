#include "gpt/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>

#include "gpt/tokenizer/utf8.h"
#include "unicode_class.h"

namespace gpt::tokenizer {
namespace {

using unicode::CharacterClass, unicode::CharacterKind;

struct Character {
  CharacterClass kind;
  size_t end;
  CharacterKind exactly;
};

constexpr std::array<CharacterKind, 128> kAsciiKinds = [] {
  std::array<CharacterKind, 128> kinds{};
  for (char c = 'a'; c <= 'z'; ++c) kinds[c] = CharacterKind::lower, kinds[c - 'a' + 'A'] = CharacterKind::upper;
  for (char c = '0'; c <= '9'; ++c) kinds[c] = CharacterKind::number;
  for (const char c : {'\t', '\n', '\v', '\f', '\r', ' '}) kinds[c] = CharacterKind::space;
  return kinds;
}();

inline Character with_class(CharacterKind kind, size_t end) { return {unicode::class_of(kind), end, kind}; }

Character long_character_at(std::string_view text, size_t offset) {
  const auto [kind, bytes, value] = utf8::scan(text, offset);
  if (kind != utf8::Scan::whole) return with_class(CharacterKind::other, offset + 1);
  return with_class(unicode::character_kind(value), offset + bytes);
}

inline Character character_at(std::string_view text, size_t offset) {
  const auto byte = static_cast<unsigned char>(text[offset]);
  if (byte < kAsciiKinds.size()) return with_class(kAsciiKinds[byte], offset + 1);
  return long_character_at(text, offset);
}

inline bool is_newline(char c) { return c == '\n' || c == '\r'; }

// perf: OPT-5. Where the letters a-z, and A-Z if `any_case`, that start at `offset` end, eight bytes at a time: most words then
// need no loop, whose exit would be unpredictable. Near the end of the text it may stop too early.
template <bool any_case>
inline size_t ascii_letters_end(std::string_view text, size_t offset) {
  static_assert(std::endian::native == std::endian::little, "the first byte is the lowest");
  constexpr uint64_t kEach = 0x0101010101010101, kHigh = 0x80 * kEach;
  for (; offset + 8 <= text.size(); offset += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + offset, 8);
    const uint64_t lower =
        (any_case ? bytes | 0x20 * kEach : bytes) & ~kHigh;  // the high bits are free for the sums below
    const uint64_t from_a = lower + (0x80 - 'a') * kEach, behind_z = lower + (0x7F - 'z') * kEach;
    const uint64_t others = ~(from_a & ~behind_z & ~bytes) & kHigh;
    if (others != 0) return offset + std::countr_zero(others) / 8;
  }
  return offset;
}

// Where the characters of one class that start at `offset` end.
inline size_t run_end(std::string_view text, size_t offset, CharacterClass kind) {
  if (kind == CharacterClass::letter) offset = ascii_letters_end<true>(text, offset);
  while (offset < text.size()) {
    const Character next = character_at(text, offset);
    if (next.kind != kind) break;
    offset = next.end;
  }
  return offset;
}

size_t newlines_end(std::string_view text, size_t offset) {
  while (offset < text.size() && is_newline(text[offset])) ++offset;
  return offset;
}

// \p{N}{1,most}
inline size_t numbers_end(std::string_view text, size_t offset, int most) {
  for (int count = 0; count < most && offset < text.size(); ++count) {
    const Character next = character_at(text, offset);
    if (next.kind != CharacterClass::number) break;
    offset = next.end;
  }
  return offset;
}

// The end of 's 't 'm 'd 'll 've 're, whose apostrophe is at `offset`; `offset` if it is none of them. Ignoring case,
// U+017F is an s as well: the only other character that Unicode folds to one of these letters.
size_t contraction_end(std::string_view text, size_t offset, bool any_case) {
  const auto letter = [&](size_t i) -> char {
    if (offset + i >= text.size()) return '\0';
    const char c = text[offset + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return offset + 2;
    case 'l': return letter(2) == 'l' ? offset + 3 : offset;
    case 'v':
    case 'r': return letter(2) == 'e' ? offset + 3 : offset;
    default: return any_case && text.substr(offset + 1).starts_with("\u017F") ? offset + 3 : offset;
  }
}

struct Spaces {
  size_t last;  // where the last of them starts
  size_t end;
  size_t newlines_end;  // after the last newline; the start of the spaces if there is none
};

Spaces spaces_at(std::string_view text, size_t offset) {
  Spaces spaces{offset, offset, offset};
  while (spaces.end < text.size()) {
    const Character next = character_at(text, spaces.end);
    if (next.kind != CharacterClass::space) break;
    if (is_newline(text[spaces.end])) spaces.newlines_end = next.end;
    spaces.last = spaces.end;
    spaces.end = next.end;
  }
  return spaces;
}

// \s+(?!\S)|\s : all spaces but the one before a word, which stands alone where it did not become part of the word.
size_t spaces_before_word_end(std::string_view text, size_t offset, const Spaces& spaces) {
  return spaces.end == text.size() || spaces.last == offset ? spaces.end : spaces.last;
}

size_t gpt2_end(std::string_view text, size_t offset) {
  if (text[offset] == '\'') {
    const size_t end = contraction_end(text, offset, false);
    if (end != offset) return end;
  }
  Character first = character_at(text, offset);
  if (text[offset] == ' ' && first.end < text.size()) first = character_at(text, first.end);
  if (first.kind != CharacterClass::space) return run_end(text, first.end, first.kind);
  return spaces_before_word_end(text, offset, spaces_at(text, offset));
}

// cl100k, Llama 3 and Qwen 2, which differ in `final_spaces`, whether the spaces at the end of the text are one piece, even
// with newlines among them, and in how many numbers are in a piece.
template <bool final_spaces, int most_numbers>
size_t cl100k_end(std::string_view text, size_t offset) {
  if (text[offset] == '\'') {
    const size_t end = contraction_end(text, offset, true);
    if (end != offset) return end;
  }
  const Character first = character_at(text, offset);
  if (first.kind == CharacterClass::letter) return run_end(text, first.end, first.kind);
  if (first.kind == CharacterClass::number) return numbers_end(text, offset, most_numbers);
  if (first.end < text.size() && !is_newline(text[offset])) {
    const Character second = character_at(text, first.end);
    if (second.kind == CharacterClass::letter) return run_end(text, second.end, second.kind);
    if (text[offset] == ' ' && second.kind == CharacterClass::other) {
      return newlines_end(text, run_end(text, second.end, second.kind));
    }
  }
  if (first.kind == CharacterClass::other) return newlines_end(text, run_end(text, first.end, first.kind));

  const Spaces spaces = spaces_at(text, offset);
  if (final_spaces && spaces.end == text.size()) return spaces.end;
  if (spaces.newlines_end != offset) return spaces.newlines_end;
  return spaces_before_word_end(text, offset, spaces);
}

// What o200k takes for letters from `begin` on: first those that may be upper-case, then those that may be lower-case. Marks and letters without
// case may be both.
struct Word {
  size_t begin, upper_end, end;
  size_t both_end;  // behind the last of the first ones that may be both; `begin` if there is none
};

Word word_at(std::string_view text, size_t begin) {
  Word word{begin, begin, begin, begin};
  for (; word.upper_end < text.size();) {
    const Character next = character_at(text, word.upper_end);
    const bool is_both = next.exactly == CharacterKind::letter || next.exactly == CharacterKind::mark;
    if (!is_both && next.exactly != CharacterKind::upper) break;
    word.upper_end = next.end;
    if (is_both) word.both_end = next.end;
  }
  for (word.end = word.upper_end; word.end < text.size();) {
    word.end = ascii_letters_end<false>(text, word.end);
    if (word.end == text.size()) break;
    const Character next = character_at(text, word.end);
    if (next.exactly != CharacterKind::lower && next.exactly != CharacterKind::letter &&
        next.exactly != CharacterKind::mark)
      break;
    word.end = next.end;
  }
  return word;
}

// The end of [upper]*[lower]+ , which gives characters back to [lower]+ ; nothing if there are none to give.
std::optional<size_t> lower_word_end(const Word& word) {
  if (word.end > word.upper_end) return word.end;
  return word.both_end > word.begin ? std::optional(word.both_end) : std::nullopt;
}

size_t with_contraction(std::string_view text, size_t end) {
  return end < text.size() && text[end] == '\'' ? contraction_end(text, end, true) : end;
}

// [^\r\n\p{L}\p{N}]?[upper]*[lower]+ or, where that is nowhere, [^\r\n\p{L}\p{N}]?[upper]+[lower]* . A mark may stand before the letters or be
// one of them.
std::optional<size_t> o200k_word_end(std::string_view text, size_t offset, const Character& first) {
  if (first.kind == CharacterClass::number || is_newline(text[offset])) return std::nullopt;
  const bool is_letter = first.kind == CharacterClass::letter;
  const Word word = word_at(text, is_letter ? offset : first.end);
  if (const auto end = lower_word_end(word)) return end;
  if (first.exactly == CharacterKind::mark) return first.end;
  return word.upper_end > word.begin ? std::optional(word.upper_end) : std::nullopt;
}

size_t o200k_end(std::string_view text, size_t offset) {
  const Character first = character_at(text, offset);
  if (const auto end = o200k_word_end(text, offset, first)) return with_contraction(text, *end);
  if (first.kind == CharacterClass::number) return numbers_end(text, offset, 3);
  Character other = first;
  if (text[offset] == ' ' && first.end < text.size()) other = character_at(text, first.end);
  if (other.kind == CharacterClass::other) {
    size_t end = run_end(text, other.end, CharacterClass::other);
    while (end < text.size() && (is_newline(text[end]) || text[end] == '/')) ++end;
    return end;
  }
  const Spaces spaces = spaces_at(text, offset);
  return spaces.newlines_end != offset ? spaces.newlines_end : spaces_before_word_end(text, offset, spaces);
}

struct Neighbour {
  CharacterKind kind;
  char first_byte;
};

// Whether a piece ends between the two characters whatever surrounds them, and the part before splits by itself as it
// does in the whole. The former: no alternative of the patterns matches across such a place. The latter: matches look
// beyond their end only after spaces, with (?!\S) and $; the part does not end in a space, so that the spaces in it are
// followed by what follows them in the whole. The one case that does end in a space is explained where it occurs.
bool always_ends_between(SplitPattern pattern, Neighbour before, Neighbour behind) {
  const bool gpt2 = pattern == SplitPattern::gpt2, o200k = pattern == SplitPattern::o200k;
  if (o200k && (before.kind == CharacterKind::mark || behind.kind == CharacterKind::mark)) return false;
  const CharacterClass kind = unicode::class_of(before.kind), next = unicode::class_of(behind.kind);
  switch (kind) {
    case CharacterClass::letter:  // which a contraction joins in o200k
      return next != kind && !(o200k && behind.first_byte == '\'');
    case CharacterClass::number: return next != kind;
    case CharacterClass::other:
      // Newlines join what is before them in cl100k; a letter joins an apostrophe, and in cl100k any single character.
      if (next == CharacterClass::space) return gpt2 || !is_newline(behind.first_byte);
      if (next == CharacterClass::letter) return gpt2 && before.first_byte != '\'';
      return next == CharacterClass::number;
    case CharacterClass::space:
      // In cl100k only spaces follow a newline within a piece, in o200k also slashes, and spaces up to their last newline are one
      // piece: through \s*[\r\n] in the whole, through that or \s++$ in the part.
      return !gpt2 && is_newline(before.first_byte) && next != CharacterClass::space &&
             !(o200k && behind.first_byte == '/');
  }
  return false;
}

// The character that ends at `end` > 0. Nothing if it is not a whole one: what comes before might complete it.
std::optional<std::string_view> character_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && !utf8::begins_character(text[start])) --start;
  const utf8::Scan scan = utf8::scan(text.substr(0, end), start);
  if (scan.kind != utf8::Scan::whole || start + scan.bytes != end) return std::nullopt;
  return text.substr(start, end - start);
}

}  // namespace

size_t piece_end(SplitPattern pattern, std::string_view text, size_t offset) {
  switch (pattern) {
    case SplitPattern::gpt2: return gpt2_end(text, offset);
    case SplitPattern::cl100k: return cl100k_end<true, 3>(text, offset);
    case SplitPattern::llama3: return cl100k_end<false, 3>(text, offset);
    case SplitPattern::qwen2: return cl100k_end<false, 1>(text, offset);
    case SplitPattern::o200k: return o200k_end(text, offset);
  }
  return text.size();
}

size_t last_piece_boundary(SplitPattern pattern, std::string_view text) {
  std::optional<Neighbour> behind;
  for (size_t end = text.size(); end > 0;) {
    const std::optional<std::string_view> character = character_before(text, end);
    std::optional<Neighbour> before;
    if (character) before = {character_at(*character, 0).exactly, character->front()};
    if (before && behind && always_ends_between(pattern, *before, *behind)) return end;
    behind = before;
    end -= character ? character->size() : 1;
  }
  return 0;
}

std::string_view regular_expression(SplitPattern pattern) {
  switch (pattern) {
    case SplitPattern::gpt2: return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case SplitPattern::cl100k:  // with \z for tiktoken's $, which means the end of a line to Hugging Face's Oniguruma
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
             R"(|\s++\z|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case SplitPattern::llama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
             R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case SplitPattern::qwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
             R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case SplitPattern::o200k:
      return R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
             R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
             R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  return {};
}

}  // namespace gpt::tokenizer
