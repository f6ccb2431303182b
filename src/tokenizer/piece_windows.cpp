#include "piece_windows.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "gpt/core/utf8.h"
#include "unicode_class.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gpt::tokenizer {
namespace {

using unicode::CharacterClass, unicode::CharacterKind;

constexpr size_t kWindow = 64;
constexpr size_t kLookahead = 3;  // the bytes of the longest contraction behind its apostrophe

// 64 bytes of the text, a bit for each in every mask, of which the lowest is the first byte's. All bytes of a character have
// its class; those of no UTF-8 are characters of their own. A window begins where a piece begins.
struct Window {
  uint64_t letters, numbers, spaces;  // those of none are other characters
  uint64_t blanks;                    // U+0020
  uint64_t newlines;                  // \r and \n
  uint64_t apostrophes;
  uint64_t beyond_ascii;
  uint64_t uppers = 0, slashes = 0;  // where the pattern tells cases apart
  // First bytes of characters of two, three and four bytes.
  uint64_t twos = 0, threes = 0, fours = 0;
  uint64_t known = ~uint64_t{0};  // the bytes that the masks are right about; the others count as spaces

  uint64_t others() const { return ~(letters | numbers | spaces); }
};

// The bits from `at` on, at most 64.
inline uint64_t from(size_t at) { return at < 64 ? ~uint64_t{0} << at : 0; }

// Nothing is known from byte `at` on.
inline void forget_from(size_t at, Window& window) {
  window.known &= ~from(at);
  for (uint64_t* mask : {&window.letters, &window.numbers, &window.spaces, &window.blanks, &window.newlines,
                         &window.apostrophes, &window.uppers, &window.slashes})
    *mask &= window.known;
  window.spaces |= ~window.known;
}

#if defined(__SSE2__)

// Whether each byte is within [first, last], both of ASCII: as signed numbers those are the highest after the addition.
inline __m128i within(__m128i bytes, char first, char last) {
  const __m128i moved = _mm_add_epi8(bytes, _mm_set1_epi8(static_cast<char>(127 - last)));
  return _mm_cmpgt_epi8(moved, _mm_set1_epi8(static_cast<char>(126 - (last - first))));
}

inline uint64_t bits(__m128i bytes, int shift) {
  return static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(bytes))) << shift;
}

template <bool tells_cases>
inline Window ascii_window(const char* text) {
  Window window{};
  for (int at = 0; at < static_cast<int>(kWindow); at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + at));
    const __m128i blanks = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(' '));
    window.letters |= bits(within(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), 'a', 'z'), at);
    window.numbers |= bits(within(bytes, '0', '9'), at);
    window.spaces |= bits(_mm_or_si128(blanks, within(bytes, '\t', '\r')), at);
    window.blanks |= bits(blanks, at);
    window.newlines |=
        bits(_mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\n')), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\r'))), at);
    window.apostrophes |= bits(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\'')), at);
    window.beyond_ascii |= bits(bytes, at);
    if (!tells_cases) continue;
    window.uppers |= bits(within(bytes, 'A', 'Z'), at);
    window.slashes |= bits(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('/')), at);
  }
  return window;
}

#else

template <bool tells_cases>
inline Window ascii_window(const char* text) {
  Window window{};
  for (size_t at = 0; at < kWindow; ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto lower = static_cast<unsigned char>(byte | 0x20);
    const auto put = [at](uint64_t& mask, bool set) { mask |= uint64_t{set} << at; };
    put(window.letters, lower >= 'a' && lower <= 'z');
    put(window.numbers, byte >= '0' && byte <= '9');
    put(window.spaces, byte == ' ' || (byte >= '\t' && byte <= '\r'));
    put(window.blanks, byte == ' ');
    put(window.newlines, byte == '\n' || byte == '\r');
    put(window.apostrophes, byte == '\'');
    put(window.beyond_ascii, byte >= 0x80);
    put(window.uppers, tells_cases && byte >= 'A' && byte <= 'Z');
    put(window.slashes, tells_cases && byte == '/');
  }
  return window;
}

#endif

struct LongCharacter {
  CharacterKind kind;
  size_t bytes;
};

// The character beyond ASCII that begins at text[begin], which kLookahead bytes follow.
inline LongCharacter long_character(std::string_view text, size_t begin) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text.data()[begin + i]); };
  const unsigned char lead = byte(0);
  if (lead >= 0xE1 && lead < 0xED && (byte(1) & 0xC0) == 0x80 && (byte(2) & 0xC0) == 0x80) {  // what nearly all are
    const char32_t value = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    return {unicode::character_kind(value), 3};
  }
  const utf8::Scan scan = utf8::scan(text, begin);
  if (scan.kind != utf8::Scan::whole) return {CharacterKind::other, 1};
  return {unicode::character_kind(scan.value), scan.bytes};
}

// Puts the characters beyond ASCII where they belong. What begins with one that the window's end cuts off is not known, and neither is what
// begins with one that `Starts` does not know.
template <class Starts>
void add_long_characters(std::string_view text, size_t begin, Window& window) {
  std::array<uint64_t, 4> of_class{};
  std::array<uint64_t, 5> of_bytes{};
  uint64_t uppers = 0;
  size_t end = kWindow;
  for (uint64_t left = window.beyond_ascii; left != 0;) {
    const auto at = static_cast<size_t>(std::countr_zero(left));
    const auto [kind, bytes] = long_character(text, begin + at);
    if (at + bytes > kWindow || !Starts::knows(kind)) {
      end = at;
      break;
    }
    const uint64_t its = ((uint64_t{1} << bytes) - 1) << at;
    of_class.data()[static_cast<size_t>(class_of(kind))] |= its;
    of_bytes.data()[bytes] |= uint64_t{1} << at;
    if (Starts::kTellsCases && kind == CharacterKind::upper) uppers |= its;
    left &= ~its;
  }
  const auto of = [&of_class](CharacterClass kind) { return of_class[static_cast<size_t>(kind)]; };
  forget_from(end, window);
  window.letters |= of(CharacterClass::letter);
  window.numbers |= of(CharacterClass::number);
  window.spaces |= of(CharacterClass::space);
  window.uppers |= uppers;
  window.twos = of_bytes[2];
  window.threes = of_bytes[3];
  window.fours = of_bytes[4];
}

// Where the characters begin of which `last_bytes` has the last bytes.
inline uint64_t starts_of(uint64_t last_bytes, const Window& window) {
  if (window.beyond_ascii == 0) return last_bytes;
  const uint64_t twos = last_bytes & window.twos << 1, threes = last_bytes & window.threes << 2;
  return (last_bytes & ~twos & ~threes) | twos >> 1 | threes >> 2;  // no space has four
}

// The bits directly behind the runs of ones in `mask` whose first ones are `firsts`.
inline uint64_t behind_runs(uint64_t firsts, uint64_t mask) { return (firsts + mask) & ~mask; }

// How many bytes a contraction takes whose apostrophe is at `apostrophe`; 0 if there is none.
template <bool any_case>
inline size_t contraction_bytes(const char* apostrophe) {
  constexpr char kCase = any_case ? 0x20 : 0;
  const auto letter = [&](size_t i) { return static_cast<char>(apostrophe[i] | kCase); };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'l': return letter(2) == 'l' ? 3 : 0;
    case 'v':
    case 'r': return letter(2) == 'e' ? 3 : 0;
    default: return any_case && apostrophe[1] == '\xC5' && apostrophe[2] == '\xBF' ? 3 : 0;  // U+017F
  }
}

// A piece ends behind every contraction that begins a piece, and nowhere within.
template <bool any_case>
inline uint64_t with_contractions(uint64_t starts, const Window& window, const char* text) {
  for (uint64_t left = window.apostrophes & starts; left != 0; left &= left - 1) {
    const auto at = static_cast<size_t>(std::countr_zero(left));
    const size_t bytes = contraction_bytes<any_case>(text + at);
    if (bytes == 0) continue;
    const uint64_t behind = at + bytes < kWindow ? uint64_t{1} << (at + bytes) : 0;
    starts = (starts & ~(uint64_t{0b110} << at)) | behind;
  }
  return starts;
}

// Where pieces start in a window, as far as is certain: a run of spaces that reaches its end may go on.
struct Gpt2Starts {
  static constexpr bool kTellsCases = false;
  static constexpr bool knows(CharacterKind) { return true; }
  static uint64_t in(const Window& window, const char* text) {
    const uint64_t others = window.others();
    const uint64_t goes_on = (window.letters & window.letters << 1) | (window.numbers & window.numbers << 1) |
                             (others & others << 1) | (window.spaces & window.spaces << 1);
    const uint64_t behind_blank = window.blanks << 1 & ~window.spaces;
    const uint64_t last_space = starts_of(window.spaces & ~window.spaces >> 1, window);
    return with_contractions<false>((~goes_on & ~behind_blank) | last_space, window, text);
  }
};

// At most so many numbers are in a piece.
template <int most>
uint64_t number_starts(uint64_t numbers) {
  if (most == 1) return numbers;
  uint64_t starts = numbers & ~(numbers << 1);
  const uint64_t fourth = numbers & numbers << 1 & numbers << 2 & numbers << 3;
  for (uint64_t more = starts; (more = more << 3 & fourth) != 0;) starts |= more;
  return starts;
}

// A space that is no newline joins the letters behind it, and so does another character that is alone.
uint64_t letter_starts(const Window& window, uint64_t other_starts) {
  const uint64_t twos = other_starts & window.twos, threes = other_starts & window.threes,
                 fours = other_starts & window.fours;
  const uint64_t behind_one = (other_starts & ~(twos | threes | fours)) << 1 | twos << 2 | threes << 3 | fours << 4;
  const uint64_t behind_space = (window.spaces & ~window.newlines) << 1;
  return window.letters & ~(window.letters << 1) & ~behind_space & ~behind_one;
}

uint64_t without_blank_lines(uint64_t indents, uint64_t plain, uint64_t newlines) {
  uint64_t kept = 0;
  for (uint64_t left = indents; left != 0; left &= left - 1) {
    const uint64_t first = left & -left;
    if ((behind_runs(first, plain) & newlines) == 0) kept |= first;
  }
  return kept;
}

// Other characters take the newlines behind them. Then come the spaces up to the last newline, those behind that, and by
// itself the last one before a word.
uint64_t space_starts(const Window& window, uint64_t others) {
  const uint64_t newlines = window.newlines, plain = window.spaces & ~newlines;
  const uint64_t taken = newlines & others << 1;
  const uint64_t first = window.spaces & ~(window.spaces << 1) & ~taken;
  const uint64_t behind_taken = behind_runs(taken, newlines) & plain;
  const uint64_t last = starts_of(plain & ~window.spaces >> 1, window);
  uint64_t indents = plain & newlines << 1;
  if (plain >> 63 != 0) indents &= ~from(static_cast<size_t>(64 - std::countl_one(plain)));  // a newline may follow
  if ((behind_runs(indents, plain) & newlines) != 0) indents = without_blank_lines(indents, plain, newlines);
  return first | behind_taken | last | indents;
}

// cl100k, Llama 3 and Qwen 2, which differ within a window in how many numbers are in a piece. Numbers are counted, which is done for ASCII
// alone.
template <int most_numbers>
struct Cl100kStarts {
  static constexpr bool kTellsCases = false;
  static constexpr bool knows(CharacterKind kind) { return kind != CharacterKind::number; }
  static uint64_t in(const Window& window, const char* text) {
    const uint64_t others = window.others();
    const uint64_t other_starts = others & ~(others << 1) & ~(window.blanks << 1);
    const uint64_t starts = space_starts(window, others) | number_starts<most_numbers>(window.numbers) | other_starts |
                            letter_starts(window, other_starts);
    return with_contractions<true>(starts, window, text);
  }
};

// A word ends where an upper-case letter follows a lower-case one, and with the contraction behind it. Marks, and letters that have no case, go
// with either.
struct O200kStarts {
  static constexpr bool kTellsCases = true;
  static constexpr bool knows(CharacterKind kind) {
    return kind != CharacterKind::number && kind != CharacterKind::mark && kind != CharacterKind::letter;
  }
  static uint64_t in(Window& window, const char* text) {
    const uint64_t taken = window.newlines & window.others() << 1;
    // Slashes behind such newlines are of the same piece.
    if (const uint64_t slashes = behind_runs(taken, window.newlines) & window.slashes; slashes != 0)
      forget_from(static_cast<size_t>(std::countr_zero(slashes)), window);
    const uint64_t others = window.others();
    const uint64_t other_starts = others & ~(others << 1) & ~(window.blanks << 1);
    const uint64_t humps = window.uppers & (window.letters & ~window.uppers) << 1;
    return behind_contractions(space_starts(window, others) | number_starts<3>(window.numbers) | other_starts |
                                   letter_starts(window, other_starts) | humps,
                               window, text);
  }

 private:
  static uint64_t behind_contractions(uint64_t starts, const Window& window, const char* text) {
    size_t end = 0;  // of the contraction before, behind which an apostrophe begins a piece
    for (uint64_t left = window.apostrophes & window.letters << 1; left != 0; left &= left - 1) {
      const auto at = static_cast<size_t>(std::countr_zero(left));
      const size_t bytes = at == end ? 0 : contraction_bytes<true>(text + at);
      if (bytes == 0) continue;
      end = at + bytes;
      starts = (starts & ~(uint64_t{0b111} << at)) | (end < kWindow ? uint64_t{1} << end : 0);
    }
    return starts;
  }
};

inline int count_bits(uint64_t mask) {  // the instruction is not in every processor that the compiler may assume
  mask -= mask >> 1 & 0x5555555555555555;
  mask = (mask & 0x3333333333333333) + (mask >> 2 & 0x3333333333333333);
  return static_cast<int>(((mask + (mask >> 4)) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101 >> 56);
}

// Appends the places of the ones in `mask`, from `begin` on. Writes some more, in groups, for the sake of few branches.
inline size_t append_places(uint64_t mask, size_t begin, size_t* places) {
  constexpr int kGroup = 4;
  const int count = count_bits(mask);
  for (int done = 0; done < count; done += kGroup) {
    for (int i = 0; i < kGroup; ++i) {
      places[done + i] = begin + static_cast<size_t>(std::countr_zero(mask | uint64_t{1} << 63));
      mask &= mask - 1;
    }
  }
  return static_cast<size_t>(count);
}

template <class Starts>
size_t ends_of_pieces(SplitPattern pattern, std::string_view text, size_t begin, std::span<size_t> ends) {
  size_t count = 0;
  while (count + kWindow <= ends.size() && begin < text.size()) {
    uint64_t starts = 0;
    if (text.size() - begin >= kWindow + kLookahead) {
      Window window = ascii_window<Starts::kTellsCases>(text.data() + begin);
      if (window.beyond_ascii != 0) add_long_characters<Starts>(text, begin, window);
      starts = Starts::in(window, text.data() + begin) & window.known & ~uint64_t{1};
    }
    if (starts == 0) {  // near the end of the text, or in a piece that is longer than a window
      begin = ends[count++] = piece_end(pattern, text, begin);
    } else {
      count += append_places(starts, begin, ends.data() + count);
      begin = ends[count - 1];
    }
  }
  return count;
}

}  // namespace

size_t piece_ends(SplitPattern pattern, std::string_view text, size_t begin, std::span<size_t> ends) {
  switch (pattern) {
    case SplitPattern::gpt2: return ends_of_pieces<Gpt2Starts>(pattern, text, begin, ends);
    case SplitPattern::cl100k:
    case SplitPattern::llama3: return ends_of_pieces<Cl100kStarts<3>>(pattern, text, begin, ends);
    case SplitPattern::qwen2: return ends_of_pieces<Cl100kStarts<1>>(pattern, text, begin, ends);
    case SplitPattern::o200k: return ends_of_pieces<O200kStarts>(pattern, text, begin, ends);
  }
  return 0;
}

}  // namespace gpt::tokenizer
