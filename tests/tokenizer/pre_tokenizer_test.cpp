#include "gpt/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gpt/tokenizer/utf8.h"
#include "src/tokenizer/matcher.h"
#include "src/tokenizer/piece_windows.h"
#include "src/tokenizer/unicode_class.h"

namespace gpt::tokenizer {
namespace {

using unicode::CharacterClass, unicode::CharacterKind;
using Texts = std::vector<std::string>;

constexpr std::array kPatterns = {SplitPattern::gpt2, SplitPattern::cl100k, SplitPattern::llama3, SplitPattern::qwen2,
                                  SplitPattern::o200k};

// Text full of what the patterns treat specially; bytes that are no UTF-8 now and then, unless that is ruled out.
std::string random_text(std::mt19937& random, size_t length, bool has_broken = true) {
  static const Texts kParts = {"a", "s", "S",  "t",      "l",      "re",     "'",      "'",          " ",
                               " ", " ", "\n", "\n",     "\r",     "\t",     "1",      "2",          "!",
                               "(", "é", "日", "\u017F", "\u3000", "\u00A0", "\u0660", "\U0001F600", "A",
                               "B", "/", "É",  "\u0301", "\u01C5", "\u02B0", "\xE3",   "\x80"};
  std::string text;
  while (text.size() < length) text += kParts[random() % (kParts.size() - (has_broken ? 0 : 2))];
  return text;
}

Texts split(SplitPattern pattern, const std::string& text) {
  Texts pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(pattern, text, begin);
    if (end <= begin || end > text.size()) throw std::runtime_error("no progress at " + std::to_string(begin));
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

// Figures of the Unicode Character Database, DerivedGeneralCategory and PropList of version 16.0.0.
TEST(UnicodeClass, CountsOfUnicode16) {
  std::array<int, 4> counts{};
  for (char32_t c = 0; c < utf8::kCodePoints; ++c) ++counts[static_cast<int>(unicode::character_class(c))];
  EXPECT_EQ(counts[static_cast<int>(CharacterClass::letter)],
            141028);                                                  // Lu 1858 + Ll 2258 + Lt 31 + Lm 404 + Lo 136477
  EXPECT_EQ(counts[static_cast<int>(CharacterClass::number)], 1911);  // Nd 760 + Nl 236 + No 915
  EXPECT_EQ(counts[static_cast<int>(CharacterClass::space)], 25);
}

TEST(UnicodeClass, CountsOfKinds) {
  std::map<CharacterKind, int> counts;
  for (char32_t c = 0; c < utf8::kCodePoints; ++c) ++counts[unicode::character_kind(c)];
  EXPECT_EQ(counts[CharacterKind::upper], 1858 + 31);      // Lu and Lt
  EXPECT_EQ(counts[CharacterKind::lower], 2258);           // Ll
  EXPECT_EQ(counts[CharacterKind::letter], 404 + 136477);  // Lm and Lo
  EXPECT_EQ(counts[CharacterKind::mark], 2501);            // Mn 2020 + Mc 468 + Me 13
}

TEST(UnicodeClass, CharactersOfEveryPlane) {
  const auto expect = [](CharacterClass kind, std::u32string_view characters) {
    for (const char32_t c : characters) EXPECT_EQ(unicode::character_class(c), kind) << utf8::describe(c);
  };
  expect(CharacterClass::letter,
         U"AZaz\u00AA\u00DF\u017F\u01C5\u02B0\u0410\u05D0\u0E01\u212A\u3042\u4E00\u9FFF\uAC00\uD7A3\uFFDC");
  expect(CharacterClass::letter, U"\U00010000\U0001E900\U00020000\U000323AF");
  expect(CharacterClass::letter, U"\u1C89\uA7CB\U000105C0\U00010D50\U00016D40");  // new in Unicode 16
  expect(CharacterClass::number, U"09\u00B2\u00BD\u0660\u2160\u2460\u3007\uFF19\U00010107\U0001D7FF\U0001FBF9");
  expect(CharacterClass::number, U"\U00010D40\U00016D70\U0001CCF0");  // new in Unicode 16
  expect(CharacterClass::space, U"\t\n\v\f\r \u0085\u00A0\u1680\u2000\u200A\u2028\u2029\u202F\u205F\u3000");
  expect(CharacterClass::other, U"!~\x1C\x1F\u200B\u0300\u2603\uFEFF\uFFFD\U0001F600\U000E0100\U0010FFFF");
  expect(CharacterClass::other, U"\uA7CE\U000323B0\U0003FFFF");  // not assigned in Unicode 16
}

TEST(PreTokenizer, Gpt2) {
  const auto gpt2 = [](const std::string& text) { return split(SplitPattern::gpt2, text); };
  EXPECT_EQ(gpt2("Hello world, it's 2024!"), (Texts{"Hello", " world", ",", " it", "'s", " 2024", "!"}));
  EXPECT_EQ(gpt2("I'll we've they're don't I'm he'd 'S 'x"),
            (Texts{"I", "'ll", " we", "'ve", " they", "'re", " don", "'t", " I", "'m", " he", "'d", " '", "S", " '",
                   "x"}));
  EXPECT_EQ(gpt2("a  b\n\nc\td \n e"), (Texts{"a", " ", " b", "\n", "\n", "c", "\t", "d", " \n", " e"}));
  EXPECT_EQ(gpt2("a  \n "), (Texts{"a", "  \n "}));
  EXPECT_EQ(gpt2("12345x67"), (Texts{"12345", "x", "67"}));
  EXPECT_EQ(gpt2("été\u3000日本\u3000 本"), (Texts{"été", "\u3000", "日本", "\u3000", " 本"}));
  EXPECT_EQ(gpt2("''s'"), (Texts{"''", "s", "'"}));
}

TEST(PreTokenizer, Cl100k) {
  const auto cl100k = [](const std::string& text) { return split(SplitPattern::cl100k, text); };
  EXPECT_EQ(cl100k("Hello world, it'S 2024!"), (Texts{"Hello", " world", ",", " it", "'S", " ", "202", "4", "!"}));
  EXPECT_EQ(cl100k("'lLx 'rEx 'VE'l'tis"), (Texts{"'lL", "x", " '", "rEx", " '", "VE", "'l", "'t", "is"}));
  EXPECT_EQ(cl100k("(foo) ((foo) \tbar"), (Texts{"(foo", ")", " ((", "foo", ")", " ", "\tbar"}));
  EXPECT_EQ(cl100k("x;\r\n\n  y \n z\n w"), (Texts{"x", ";\r\n\n", " ", " y", " \n", " z", "\n", " w"}));
  EXPECT_EQ(cl100k("a'\u017Fb'\u212Ac"), (Texts{"a", "'\u017F", "b", "'\u212Ac"}));
  EXPECT_EQ(cl100k("1234567"), (Texts{"123", "456", "7"}));
  EXPECT_EQ(cl100k("\u00B2\u00BD\u0661\u0662"), (Texts{"\u00B2\u00BD\u0661", "\u0662"}));
}

TEST(PreTokenizer, O200k) {
  const auto o200k = [](const std::string& text) { return split(SplitPattern::o200k, text); };
  EXPECT_EQ(o200k("Hello world, it'S 2024!"), (Texts{"Hello", " world", ",", " it'S", " ", "202", "4", "!"}));
  EXPECT_EQ(o200k("camelCaseHTMLParser ABCd aB"), (Texts{"camel", "Case", "HTMLParser", " ABCd", " a", "B"}));
  EXPECT_EQ(o200k("it's's'sx don'tS we'LL'"), (Texts{"it's", "'s's", "x", " don't", "S", " we'LL", "'"}));
  EXPECT_EQ(o200k("(foo) ((foo) \tbar"), (Texts{"(foo", ")", " ((", "foo", ")", " ", "\tbar"}));
  EXPECT_EQ(o200k("x;\n//\n/a;\n\n y\n/z"), (Texts{"x", ";\n//\n/", "a", ";\n\n", " y", "\n", "/z"}));
  EXPECT_EQ(o200k("中Aa中AB"), (Texts{"中Aa中", "AB"})) << "a letter without case may be the last that is lower-case";
  EXPECT_EQ(o200k("\u0301AB \u0301Ab -\u0301 --\u0301a"),
            (Texts{"\u0301", "AB", " \u0301Ab", " -\u0301", " --\u0301", "a"}));
  EXPECT_EQ(o200k("ÉtéÉTÉ \u01C5a\u02B0A"), (Texts{"Été", "ÉTÉ", " \u01C5a\u02B0", "A"}));
  EXPECT_EQ(o200k("a \n  "), (Texts{"a", " \n", "  "}));
}

// The same expressions, matched by a library.
TEST(PreTokenizer, PiecesAreThoseOfTheRegularExpressions) {
  std::mt19937 random(23);
  for (const SplitPattern pattern : kPatterns) {
    const auto expression = match_expression(regular_expression(pattern));
    for (int round = 0; round < 20'000; ++round) {
      std::string text;
      while (text.empty()) text = random_text(random, random() % 40, /*has_broken=*/false);
      Texts expected;
      visit_matches(*expression, text, [&](size_t begin, size_t end, bool is_match) {
        ASSERT_TRUE(is_match);
        expected.push_back(text.substr(begin, end - begin));
      });
      ASSERT_EQ(split(pattern, text), expected) << testing::PrintToString(text);
    }
  }
}

TEST(PreTokenizer, EveryByteWithinLongWords) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const Texts pieces = split(SplitPattern::gpt2, "abcd" + std::string(1, c) + "efghijklmnopqrstuvwxyz");
    EXPECT_EQ(pieces.size(), letter ? 1 : c == ' ' ? 2 : 3) << "byte " << byte;
  }
}

TEST(PreTokenizer, TheEndOfTheTextDividesCl100kFromLlama3) {
  const std::string text = "a \n  ";
  EXPECT_EQ(split(SplitPattern::cl100k, text), (Texts{"a", " \n  "}));
  EXPECT_EQ(split(SplitPattern::llama3, text), (Texts{"a", " \n", "  "}));
  EXPECT_EQ(split(SplitPattern::cl100k, text + "b"), (Texts{"a", " \n", " ", " b"}));
  EXPECT_EQ(split(SplitPattern::llama3, text + "b"), (Texts{"a", " \n", " ", " b"}));
}

TEST(PreTokenizer, BytesThatAreNoUtf8AreCharactersOfTheirOwn) {
  for (const SplitPattern pattern : kPatterns) {
    EXPECT_EQ(split(pattern, "a\xFF\x80 \xE3\x80"), (Texts{"a", "\xFF\x80", " \xE3\x80"}));
    EXPECT_EQ(split(pattern,
                    "\xE3\x80"
                    "a"),
              (Texts{"\xE3\x80", "a"}));  // two characters, not one that joins the letter
    EXPECT_EQ(split(pattern, "1\xED\xA0\x80"), (Texts{"1", "\xED\xA0\x80"}));  // a surrogate
  }
  EXPECT_EQ(split(SplitPattern::cl100k,
                  "\xFF"
                  "a"),
            (Texts{"\xFF"
                   "a"}));
}

// piece_ends() looks at 64 bytes at a time, so the texts are of a few times that, and often of few different parts: runs of
// one class then reach from one window into the next.
TEST(PreTokenizer, ManyEndsAtOnceAreThoseFoundOneByOne) {
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    if (round % 2 == 0) {
      text = random_text(random, random() % 300);
    } else {
      Texts parts(3);
      for (std::string& part : parts) part = random_text(random, 1 + random() % 8);
      while (text.size() < 300) text += parts[random() % parts.size()];
    }
    std::vector<size_t> ends(kFewestPieceEnds + random() % 100);
    for (const SplitPattern pattern : kPatterns) {
      for (size_t begin = 0; begin < text.size();) {
        const size_t count = piece_ends(pattern, text, begin, ends);
        ASSERT_TRUE(count > 0 && count <= ends.size());
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(ends[i], piece_end(pattern, text, begin)) << testing::PrintToString(text.substr(begin));
          begin = ends[i];
        }
      }
    }
  }
}

TEST(PreTokenizer, ABoundaryHoldsWhateverComesBeforeAndBehind) {
  std::mt19937 random(7);
  for (const SplitPattern pattern : kPatterns) {
    int found = 0;
    for (int round = 0; round < 30'000; ++round) {
      const std::string text = random_text(random, 1 + random() % 12);
      const size_t cut = last_piece_boundary(pattern, text);
      ASSERT_LT(cut, text.size());
      if (cut == 0) continue;
      ++found;
      const std::string before = random_text(random, random() % 6) + text.substr(0, cut);
      const std::string behind = text.substr(cut) + random_text(random, random() % 6);
      Texts parts = split(pattern, before);
      std::ranges::copy(split(pattern, behind), std::back_inserter(parts));
      ASSERT_EQ(split(pattern, before + behind), parts) << "cut after " << testing::PrintToString(before);
    }
    EXPECT_GT(found, 15'000);
  }
}

TEST(PreTokenizer, BoundariesAreFoundNearTheEndOfOrdinaryText) {
  for (const SplitPattern pattern : kPatterns) {
    EXPECT_EQ(last_piece_boundary(pattern, "one two three"), 7);
    EXPECT_EQ(last_piece_boundary(pattern, "日本,日本 日本"), 13);
    EXPECT_EQ(last_piece_boundary(pattern, "x\xE3\x80"), 0);  // what follows may make it a space or a letter
    EXPECT_EQ(last_piece_boundary(pattern, "\x80 x"), 0);     // and what comes before, too
    EXPECT_EQ(last_piece_boundary(pattern, ""), 0);
    EXPECT_EQ(last_piece_boundary(pattern, std::string(1000, ' ')), 0);
  }
  EXPECT_EQ(last_piece_boundary(SplitPattern::gpt2, "it's\n\nx"), 4);
  EXPECT_EQ(last_piece_boundary(SplitPattern::llama3, "it's\n\nx"), 6);
  EXPECT_EQ(last_piece_boundary(SplitPattern::gpt2, "a'b"), 1);
  EXPECT_EQ(last_piece_boundary(SplitPattern::gpt2, "a.b"), 2);
  EXPECT_EQ(last_piece_boundary(SplitPattern::cl100k, "a.b"), 1);
  EXPECT_EQ(last_piece_boundary(SplitPattern::o200k, "x it's"), 1) << "a contraction is of its word";
  EXPECT_EQ(last_piece_boundary(SplitPattern::o200k, "a\n/"), 1);
}

// A scan that starts again from each piece's beginning would take hours here.
TEST(PreTokenizer, LongRunsAreScannedInLinearTime) {
  constexpr size_t kLength = 1'000'000;
  Texts patterns = {" ",  "\n",   "a", "1",      "!",   "'",  "\u3000", " \n", "\n ",          "' ",    "\xE3",
                    "a ", "! \n", "A", "\u0301", "日A", "aA", "a's",    "/\n", "\u0301ABCDEF", "\r\n\t"};
  for (const SplitPattern pattern : kPatterns) {
    for (const std::string& repeated : patterns) {
      std::string text;
      while (text.size() < kLength) text += repeated;
      text += "x";
      size_t end = 0;
      while (end < text.size()) end = piece_end(pattern, text, end);
      EXPECT_EQ(end, text.size());
    }
  }
}

}  // namespace
}  // namespace gpt::tokenizer
