// What Python 3.11 answers.
#include "gpt/evaluate/python_text.h"

#include <gtest/gtest.h>

namespace gpt::evaluate {
namespace {

TEST(PythonText, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(strip(" \t\n\u00a0a b\u2003\u3000\x1f"), "a b");
  EXPECT_EQ(strip(" \u2028 "), "");
  EXPECT_EQ(strip("\u200ba"), "\u200ba");  // a zero-width space is none
  EXPECT_EQ(trailing_space("ab \u00a0"), 3u);
  EXPECT_EQ(trailing_space("é"), 0u);
}

TEST(PythonText, CapitalizingMakesAllOtherLettersSmall) {
  EXPECT_EQ(capitalize("hELLO World"), "Hello world");
  EXPECT_EQ(capitalize("élan ÉTÉ ΩΔ ЖЗ"), "Élan été ωδ жз");
  EXPECT_EQ(capitalize("1 ABC"), "1 abc");
  EXPECT_EQ(capitalize(""), "");
}

TEST(PythonText, CharactersAreNotBytes) { EXPECT_EQ(characters("é語🦦a"), 4); }

TEST(PythonText, WordsAreWhatASplitAtWhiteSpaceGives) {
  const auto words = [](std::initializer_list<std::string_view> pieces) {
    WordCount count;
    for (const std::string_view piece : pieces) count.add(piece);
    return count.words();
  };
  EXPECT_EQ(words({"one two  three\n"}), 4);  // an empty one at the end
  EXPECT_EQ(words({""}), 1);
  EXPECT_EQ(words({"a ", " b", "c"}), 2);
  EXPECT_EQ(words({"a\u3000b"}), 2);
}

}  // namespace
}  // namespace gpt::evaluate
