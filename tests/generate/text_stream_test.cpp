#include "gpt/generate/text_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gpt/core/utf8.h"

namespace gpt::generate {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

// The stream of `bytes` cut into the given pieces, each piece checked to be whole characters.
struct Streamed {
  std::string text;
  bool stopped;
};
Streamed stream(const std::vector<std::string>& pieces, std::vector<std::string> stop = {}) {
  TextStream stream(std::move(stop));
  std::string text;
  for (const std::string& piece : pieces) {
    const std::string shown = stream.push(piece);
    EXPECT_TRUE(utf8::is_valid(shown)) << shown;
    text += shown;
  }
  return {text + stream.finish(), stream.stopped()};
}

std::vector<std::string> single_bytes(const std::string& bytes) {
  std::vector<std::string> result;
  for (const char c : bytes) result.emplace_back(1, c);
  return result;
}

TEST(TextStream, CharactersAppearOnlyWhenWhole) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xE2"), "a");
  EXPECT_EQ(stream.push("\x82"), "");
  EXPECT_EQ(stream.push("\xAC!"), "€!");
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.push("\x80"), "😀");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, AnUnfinishedCharacterBecomesTheReplacement) {
  TextStream stream;
  EXPECT_EQ(stream.push("x\xE2\x82"), "x");
  EXPECT_EQ(stream.finish(), kReplacement);
}

// Each against Python: bytes.decode('utf-8', errors='replace').
TEST(TextStream, InvalidBytesAreReplacedAsPythonDoes) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"\x80", 1},                      // a lone continuation byte
      {"\xC0\xAF", 2},                  // overlong
      {"\xE0\x80\xAF", 3},              // overlong
      {"\xED\xA0\x80", 3},              // a surrogate
      {"\xF4\x90\x80\x80", 4},          // beyond U+10FFFF
      {"\xF0\x80\x80\xAF", 4},          // overlong
      {"\xF5\x80", 2},                  // no such lead byte
      {"\xE1\x80\xE2\xF0\x91\x92", 3},  // three cut characters
      {"\xF1\xBF\xBF", 1},              // cut by the end
      {"\xFF\xFE", 2},
  };
  for (const auto& [bytes, replacements] : cases) {
    std::string expected = "<";
    for (int i = 0; i < replacements; ++i) expected += kReplacement;
    expected += '>';
    EXPECT_EQ(stream({"<" + bytes + ">"}).text, expected);
    EXPECT_EQ(stream(single_bytes("<" + bytes + ">")).text, expected);
  }
}

TEST(TextStream, StopTextIsNeverShownNotEvenInParts) {
  TextStream stream({"\n\n", "END"});
  EXPECT_EQ(stream.push("one\n"), "one");
  EXPECT_EQ(stream.push("two E"), "\ntwo ");
  EXPECT_EQ(stream.push("N"), "");
  EXPECT_EQ(stream.push("TER"), "ENTER");
  EXPECT_EQ(stream.push("\nEN"), "\n");
  EXPECT_EQ(stream.push("D."), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, HeldTextComesOutAtTheEnd) {
  const auto [text, stopped] = stream({"wait for E", "N"}, {"END"});
  EXPECT_EQ(text, "wait for EN");
  EXPECT_FALSE(stopped);
}

TEST(TextStream, StopTextMayBeginInsideItself) {
  EXPECT_EQ(stream({"aa", "aa", "b!"}, {"aab"}).text, "aa");
  EXPECT_EQ(stream({"€", "\xE2\x82", "\xAC", "."}, {"€€"}).text, "");
}

// Brute force: after each character, does the text end in a stop text? Random cuts must not change the answer.
TEST(TextStream, ResultIsIndependentOfTheCuts) {
  std::mt19937 random(7);
  const std::vector<std::string> stop = {"abca", "bc", "cab€", "€€"};
  const std::vector<std::string> letters = {"a", "b", "c", "€"};
  int stops = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string expected, bytes;
    bool stops_here = false;
    for (int i = 0; i < 8; ++i) {
      const std::string& letter = letters[random() % letters.size()];
      bytes += letter;
      if (stops_here) continue;
      expected += letter;
      size_t longest = 0;
      for (const std::string& s : stop) {
        if (expected.ends_with(s)) longest = std::max(longest, s.size());
      }
      stops_here = longest > 0;
      expected.resize(expected.size() - longest);
    }
    std::vector<std::string> pieces;
    for (size_t i = 0, n; i < bytes.size(); i += n) pieces.push_back(bytes.substr(i, n = 1 + random() % 5));
    const auto [text, stopped] = stream(pieces, stop);
    ASSERT_EQ(text, expected) << bytes;
    ASSERT_EQ(stopped, stops_here) << bytes;
    stops += stopped;
  }
  EXPECT_GT(stops, 200);
  EXPECT_LT(stops, 1990);
}

}  // namespace
}  // namespace gpt::generate
