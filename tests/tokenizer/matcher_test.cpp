#include "src/tokenizer/matcher.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/utf8.h"
#include "src/tokenizer/oniguruma.h"
#include "support/source_folder.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;
using Spans = std::vector<std::pair<size_t, size_t>>;

// Where each character begins, by byte.
std::vector<size_t> character_numbers(const std::string& text) {
  std::vector<size_t> numbers;
  size_t count = 0;
  for (const char c : text) {
    if (utf8::begins_character(c)) ++count;
    numbers.push_back(count - 1);
  }
  numbers.push_back(count);
  return numbers;
}

// Written by scripts/make_tokenizer_fixtures.py: what Oniguruma matches in tokenizers.
TEST(Matcher, MatchesWhatOnigurumaMatches) {
  const std::string path = test::source_folder() + "/tests/tokenizer/hugging_face/matches.json";
  const json expected = json::parse(read_file(path, ExitCode::data));
  const std::string text = expected["text"];
  const std::vector<size_t> numbers = character_numbers(text);
  EXPECT_GE(expected["matches"].size(), 60);
  for (const auto& [pattern, matches] : expected["matches"].items()) {
    Spans found;
    visit_matches(*match_expression(pattern), text, [&](size_t begin, size_t end, bool is_match) {
      if (is_match && begin < end) found.emplace_back(numbers[begin], numbers[end]);
    });
    EXPECT_EQ(found, matches.get<Spans>()) << pattern << " as " << pcre2_pattern(pattern);
  }
}

TEST(Matcher, RefusesPatternsThatPcre2WouldReadInAnotherWay) {
  const std::pair<const char*, const char*> cases[] = {
      {"(a)\\1", "it has a back reference or an octal number"},
      {"\\012", "it has a back reference or an octal number"},
      {"\\k<x>", "it has \\k, which is not supported"},
      {"\\xC3", "it has a byte of a character"},
      {"\\x{110000}", "it has a number that is no character"},
      {"\\uD800", "it has a number that is no character"},
      {"\\p{Nonsense}", "it has the property nonsense, which is not supported"},
      {"\\pL", "it has \\p without a name in braces"},
      {"[[:alpha:]]", "it has a POSIX bracket"},
      {"[]a]", "it has a class that begins with ]"},
      {"[\\d-z]", "it has a range that begins with a class"},
      {"[a-\\d]", "it has a range that ends with a class"},
      {"[z-a]", "it has a range whose end is before its beginning"},
      {"a{3,2}", "it has an interval whose end is before its beginning"},
      {"a{65536}", "it repeats more than 65535 times"},
      {"[a", "it ends too early"},
      {"a\\", "it ends too early"},
      {"(a", "it has a ( without a )"},
      {"a)", "it has a ) without a ("},
      {"*a", "it repeats nothing"},
      {"a|+", "it repeats nothing"},
      {"{2}", "it repeats nothing"},
      {"(?x)a b", "it has the option 'x', which is not supported"},
      {"(?~a)", "it has the option '~', which is not supported"},
      {"(?i)straSSe", "it ignores the case of letters that become several in the other case"},
      {"(?i:é)", "it ignores the case of letters that become several in the other case"},
      {"(?i)\\p{Lu}", "it ignores the case of a property of case"}};
  for (const auto& [pattern, message] : cases) {
    try {
      pcre2_pattern(pattern);
      ADD_FAILURE() << pattern;
    } catch (const PatternError& error) { EXPECT_STREQ(error.what(), message) << pattern; }
  }
  EXPECT_THROW(match_expression("(?<=a+)b"), PatternError);  // PCRE2 says why
  EXPECT_THROW(pcre2_pattern(std::string(10'001, 'a')), PatternError);
  EXPECT_THROW(pcre2_pattern(std::string(1000, '(')), PatternError);
  EXPECT_THROW(pcre2_pattern(std::string(1000, '[')), PatternError);
}

Spans matches_of(const Matcher& matcher, const std::string& text) {
  Spans found;
  visit_matches(matcher, text, [&](size_t begin, size_t end, bool is_match) {
    if (is_match) found.emplace_back(begin, end);
  });
  return found;
}

// As Oniguruma's iteration does in Rust.
TEST(Matcher, AnEmptyMatchCountsUnlessItFollowsAMatch) {
  EXPECT_EQ(matches_of(*match_expression("a*"), "baab"), (Spans{{0, 0}, {1, 3}, {4, 4}}));
  EXPECT_EQ(matches_of(*match_expression(""), "é"), (Spans{{0, 0}, {2, 2}}));
  EXPECT_EQ(matches_of(*match_text("aa"), "aaaaa"), (Spans{{0, 2}, {2, 4}}));
  EXPECT_EQ(matches_of(*match_pieces(SplitPattern::gpt2), "a b"), (Spans{{0, 1}, {1, 3}}));
}

TEST(Matcher, LongMatchesNeedNoStack) {
  const std::string text(500'000, 'a');
  EXPECT_EQ(matches_of(*match_expression("(?:a|b)+"), text), (Spans{{0, text.size()}}));
}

}  // namespace
}  // namespace gpt::tokenizer
