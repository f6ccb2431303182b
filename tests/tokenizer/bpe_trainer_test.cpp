#include "gpt/tokenizer/bpe_trainer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/child_process.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/pre_tokenizer.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::tokenizer {
namespace {

using Merges = std::vector<std::pair<int32_t, int32_t>>;

// Ids with one special token: 0 is the special token, then come the bytes '!' to '~'. A space is spelled as U+0120: it is
// the 33rd byte behind the 188 that are spelled as themselves.
constexpr int32_t id(char c) { return c == ' ' ? 1 + 188 + 32 : 1 + c - '!'; }
constexpr int32_t kFirstMerge = 257;

BpeTrainingOptions options(int64_t merges, int64_t min_frequency = 0) {
  BpeTrainingOptions options;
  options.vocab_size = kFirstMerge + merges;
  options.min_frequency = min_frequency;
  options.threads = 1;
  return options;
}

BpeModel learn(const BpeTrainingOptions& options, const std::vector<std::string>& texts) {
  BpeTrainer trainer(options);
  for (const std::string& text : texts) trainer.add(text);
  return trainer.train();
}

// The definition, with everything counted anew for each merge.
Merges slow_merges(const BpeTrainingOptions& options, const std::vector<std::string>& texts) {
  std::map<std::string, int64_t> pieces;
  for (const std::string& text : texts) {
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
      end = piece_end(options.split, text, begin);
      ++pieces[text.substr(begin, end - begin)];
    }
  }
  const BpeModel alphabet = learn(
      [&] {
        BpeTrainingOptions bytes_only = options;
        bytes_only.vocab_size = static_cast<int64_t>(options.special_tokens.size()) + 256;
        return bytes_only;
      }(),
      {});
  std::map<std::string, int32_t> ids;
  for (size_t i = 0; i < alphabet.tokens.size(); ++i) ids.emplace(alphabet.tokens[i], static_cast<int32_t>(i));
  std::vector<std::string> tokens = alphabet.tokens;
  std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
  for (const auto& [piece, count] : pieces) {
    words.emplace_back();
    words.back().second = count;
    for (const char byte : piece) words.back().first.push_back(ids.at(std::string(1, byte)));
  }

  Merges merges;
  while (static_cast<int64_t>(tokens.size()) < options.vocab_size) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;  // ordered by ids
    for (const auto& [word, count] : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) counts[{word[i], word[i + 1]}] += count;
    }
    std::pair<int32_t, int32_t> best;
    int64_t most = 0;
    for (const auto& [pair, count] : counts) {
      if (count > most) most = count, best = pair;
    }
    if (most < 1 || most < options.min_frequency) break;
    merges.push_back(best);
    const auto [place, is_new] =
        ids.emplace(tokens[best.first] + tokens[best.second], static_cast<int32_t>(tokens.size()));
    if (is_new) tokens.push_back(place->first);
    for (auto& [word, count] : words) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool is_pair = i + 1 < word.size() && word[i] == best.first && word[i + 1] == best.second;
        merged.push_back(is_pair ? place->second : word[i]);
        i += is_pair;
      }
      word = std::move(merged);
    }
  }
  return merges;
}

std::string random_text(uint64_t seed, size_t length, const std::vector<std::string>& alphabet) {
  std::mt19937_64 random(seed);
  std::string text;
  while (text.size() < length) text += alphabet[random() % alphabet.size()];
  return text;
}

TEST(BpeTrainer, StartsWithSpecialTokensThenBytesInTheOrderOfTheirSpelling) {
  BpeTrainingOptions some = options(0);
  some.special_tokens = {"<pad>", "<|endoftext|>"};
  some.vocab_size = 258;
  const BpeModel model = learn(some, {"text"});
  ASSERT_EQ(model.tokens.size(), 258);
  EXPECT_EQ(model.special_tokens, (std::vector<SpecialToken>{{"<pad>", 0}, {"<|endoftext|>", 1}}));
  EXPECT_EQ(model.tokens[0], "<pad>");
  EXPECT_EQ(model.tokens[2], "!");
  EXPECT_EQ(model.tokens[2 + 93], "~");
  EXPECT_EQ(model.tokens[2 + 94], "\xA1");
  EXPECT_EQ(model.tokens[2 + 94 + 11], "\xAC");
  EXPECT_EQ(model.tokens[2 + 94 + 12], "\xAE");  // 0xAD, the soft hyphen, comes last
  EXPECT_EQ(model.tokens[2 + 187], "\xFF");
  EXPECT_EQ(model.tokens[2 + 188], std::string(1, '\0'));
  EXPECT_EQ(model.tokens[2 + 188 + 32], " ");
  EXPECT_EQ(model.tokens[2 + 188 + 33], "\x7F");
  EXPECT_EQ(model.tokens[257], "\xAD");
  EXPECT_TRUE(model.merges.empty());
  EXPECT_EQ(model.split, SplitPattern::gpt2);
  EXPECT_FALSE(model.ignore_merges);
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  const BpeModel model = learn(options(3), {"xyz xy xy"});
  // xy is there 3 times; then a space before xy, twice; then xyz.
  EXPECT_EQ(model.merges, (Merges{{id('x'), id('y')}, {id(' '), kFirstMerge}, {kFirstMerge, id('z')}}));
  EXPECT_EQ(model.tokens[kFirstMerge], "xy");
  EXPECT_EQ(model.tokens[kFirstMerge + 1], " xy");
  EXPECT_EQ(model.tokens[kFirstMerge + 2], "xyz");
}

TEST(BpeTrainer, OfEquallyFrequentPairsTheSmallerLeftIdComesFirstThenTheSmallerRightId) {
  EXPECT_EQ(learn(options(4), {"qb", "pd", "pc", "ra"}).merges,
            (Merges{{id('p'), id('c')}, {id('p'), id('d')}, {id('q'), id('b')}, {id('r'), id('a')}}));
}

TEST(BpeTrainer, CountsOverlappingPairsAndMergesThemFromTheLeft) {
  // aa is counted twice in aaa, as often as bc and before it by its ids.
  EXPECT_EQ(learn(options(2), {"aaa", "bc", "bc"}).merges, (Merges{{id('a'), id('a')}, {id('b'), id('c')}}));
  // aaaaa becomes aa aa a, and with both aa in one, aaaa a: a aa is never there.
  EXPECT_EQ(learn(options(10), {"aaaaa"}).merges,
            (Merges{{id('a'), id('a')}, {kFirstMerge, id('a')}, {kFirstMerge, kFirstMerge + 1}}));
  EXPECT_EQ(learn(options(10), {"abababa"}).merges, (Merges{{id('a'), id('b')},
                                                            {kFirstMerge, kFirstMerge},
                                                            {kFirstMerge, id('a')},
                                                            {kFirstMerge + 1, kFirstMerge + 2}}));
}

TEST(BpeTrainer, LeavesPairsBelowTheMinimumFrequency) {
  const std::vector<std::string> texts = {"ab", "ab", "ab", "cd", "cd", "ef"};
  EXPECT_EQ(learn(options(9, 3), texts).merges, (Merges{{id('a'), id('b')}}));
  EXPECT_EQ(learn(options(9, 2), texts).merges, (Merges{{id('a'), id('b')}, {id('c'), id('d')}}));
  EXPECT_EQ(learn(options(9, 1), texts).merges.size(), 3);
  EXPECT_EQ(learn(options(9, 0), texts).merges.size(), 3);
}

TEST(BpeTrainer, GivesASmallerVocabularyWhenThereIsNothingLeftToMerge) {
  EXPECT_EQ(learn(options(1000), {"abc"}).tokens.size(), kFirstMerge + 2);
  EXPECT_EQ(learn(options(1000), {""}).tokens.size(), kFirstMerge);
  EXPECT_EQ(learn(options(1000), {}).tokens.size(), kFirstMerge);
}

TEST(BpeTrainer, AMergeThatIsSpelledAsASpecialTokenIsThatToken) {
  BpeTrainingOptions with_word = options(0);
  with_word.special_tokens = {"abc"};
  with_word.vocab_size = 257 + 2;
  const BpeModel model = learn(with_word, {"abcd", "abcd", "abc"});
  EXPECT_EQ(model.merges, (Merges{{id('a'), id('b')}, {kFirstMerge, id('c')}, {0, id('d')}}));
  EXPECT_EQ(model.tokens.size(), 257 + 2);
  EXPECT_EQ(model.tokens.back(), "abcd");
}

TEST(BpeTrainer, ASpecialTokenThatIsSpelledInAnotherWayStaysApart) {
  BpeTrainingOptions with_letter = options(1);
  with_letter.special_tokens = {"\u00e9t"};  // as text: bytes C3 A9 74, spelled Ã©t in vocabulary files
  const BpeModel model = learn(with_letter, {"\u00e9t"});
  EXPECT_EQ(model.tokens[0], "\u00e9t");
  EXPECT_EQ(model.merges.size(), 1);
  EXPECT_EQ(model.tokens[kFirstMerge], "\xA9t");  // both pairs are there once; A9 has the smaller id
}

TEST(BpeTrainer, RefusesImpossibleOptions) {
  const auto with = [](std::vector<std::string> specials, int64_t vocab_size, int64_t min_frequency = 0) {
    BpeTrainingOptions options;
    options.special_tokens = std::move(specials);
    options.vocab_size = vocab_size;
    options.min_frequency = min_frequency;
    return options;
  };
  EXPECT_ERROR(
      BpeTrainer(with({"<a>", "<b>"}, 257)), ExitCode::config,
      "a vocabulary of 257 is impossible; with the 256 bytes and 2 special tokens it can have 258 to 2,097,151 entries");
  EXPECT_NO_THROW(BpeTrainer(with({"<a>", "<b>"}, 258)));
  EXPECT_NO_THROW(BpeTrainer(with({}, 2'097'151)));
  EXPECT_ERROR(BpeTrainer(with({}, 2'097'152)), ExitCode::config, "a vocabulary of 2097152 is impossible");
  EXPECT_ERROR(BpeTrainer(with({"<a>", "<b>", "<a>"}, 300)), ExitCode::config, "'<a>' is given twice");
  EXPECT_ERROR(BpeTrainer(with({""}, 300)), ExitCode::config, "a special token is empty");
  EXPECT_ERROR(BpeTrainer(with({"a"}, 300)), ExitCode::config, "'a' is the token of a byte");
  EXPECT_ERROR(BpeTrainer(with({"\u00e9"}, 300)), ExitCode::config, "is the token of a byte");
  EXPECT_ERROR(BpeTrainer(with({}, 300, -1)), ExitCode::config, "min_frequency is -1");
  // "\u0120a" is how vocabulary files spell " a".
  EXPECT_ERROR(learn(with({"\u0120a"}, 300), {" a"}), ExitCode::config, "spell it differently");
}

TEST(BpeTrainer, IsTheSlowTrainerOnRandomTexts) {
  const std::vector<std::vector<std::string>> alphabets = {
      {"a"},
      {"a", "b"},
      {"a", "b", "a", "b", " "},
      {"aa", "aaa", "b", "ab", "\n"},
      {"to", "be", "or", "not", " ", " ", " ", "\n", "'s", "42", "..."},
      {"\u00e9", "\u4e16\u754c", "\U0001F642", " ", "x", "\t"},
      {"\xff", "\xc3", "\x80", "a", " "},  // no UTF-8
  };
  for (uint64_t seed = 0; seed < 42; ++seed) {
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < 1 + seed % 3; ++i)
      texts.push_back(random_text(3 * seed + i, 20 + 40 * seed, alphabets[seed % alphabets.size()]));
    const BpeTrainingOptions some = options(20 + seed * 10, static_cast<int64_t>(seed % 4));
    EXPECT_EQ(learn(some, texts).merges, slow_merges(some, texts)) << "seed " << seed;
  }
}

// Longer than what one thread takes at a time, with more distinct pieces than a thread's own table holds.
TEST(BpeTrainer, IsTheSlowTrainerOnALongText) {
  std::mt19937_64 random(7);
  std::string text;
  while (text.size() < 3'000'000) {
    uint64_t word = random() % (text.size() % 2 ? 50 : 60'000);
    for (; word > 0; word /= 40) text += static_cast<char>('A' + word % 40);
    text += ' ';
  }
  BpeTrainingOptions some = options(12);
  some.threads = 2;
  EXPECT_EQ(learn(some, {text}).merges, slow_merges(some, {text}));
}

// All pairs of letters are equally frequent, unless a word is cut in two: its pair is then the rarest.
TEST(BpeTrainer, SharesALongTextOutWithoutCuttingAPiece) {
  std::string text;
  while (text.size() < 3'000'000) text += "abcdefghij ";
  BpeTrainingOptions some = options(20);
  some.threads = 3;
  EXPECT_EQ(learn(some, {text}).merges, slow_merges(some, {text}));
}

TEST(BpeTrainer, LearnsTheSameWithAnyNumberOfThreads) {
  const std::vector<std::string> syllables = {"ka", "to", "mi", "ren", "su", " ", " ", "\n", "'ll", "7", "\u00e9"};
  std::vector<std::string> texts = {random_text(1, 9'000'000, syllables)};
  for (uint64_t i = 0; i < 300; ++i) texts.push_back(random_text(i, 10 * i, syllables));
  BpeTrainingOptions some = options(150);
  const BpeModel one = learn(some, texts);
  EXPECT_EQ(one.tokens.size(), some.vocab_size);
  for (const int threads : {2, 3, 8}) {
    some.threads = threads;
    EXPECT_EQ(learn(some, texts), one) << threads << " threads";
  }
}

TEST(BpeTrainer, ATextEndsAPiece) {
  EXPECT_EQ(learn(options(9), {"ab", "cd"}).merges, (Merges{{id('a'), id('b')}, {id('c'), id('d')}}));
}

TEST(BpeTrainer, APieceLongerThanAnyWordIsLearnedInTheEncodersParts) {
  const std::string part(BpeTokenizer::kLongestPiece, 'a');
  const BpeModel model = learn(options(100), {part + part + part + "aa"});
  EXPECT_EQ(model, learn(options(100), {part, part, part, "aa"}));
  EXPECT_EQ(model.tokens.back(), part);
}

#ifndef __SANITIZE_ADDRESS__  // whose own memory is many times this

// What the process may have beyond what it has.
void limit_memory(rlim_t bytes) {
  std::ifstream status("/proc/self/status");
  std::string word;
  rlim_t kilobytes = 0;
  while (status >> word && word != "VmData:") continue;
  status >> kilobytes;
  const rlimit limit{kilobytes * 1024 + bytes, RLIM_INFINITY};
  setrlimit(RLIMIT_DATA, &limit);
}

TEST(BpeTrainer, TakesASmallMultipleOfATextWithoutBreaks) {
  const std::string text = random_text(1, 16'000'000, {"a", "b"});
  const ChildResult child = run_child([&] {
    limit_memory(240'000'000);
    return learn(options(10), {text}).merges.size() == 10 ? 0 : 1;
  });
  EXPECT_EQ(child.status, 0) << child.errors;
}

#endif

TEST(BpeTrainer, ReportsProgressAndStopsWhenAsked) {
  BpeTrainer trainer(options(2));
  trainer.add("abcd abcd");
  std::vector<std::pair<int64_t, int64_t>> reports;
  trainer.train([&](int64_t done, int64_t all) {
    reports.emplace_back(done, all);
    return true;
  });
  ASSERT_GE(reports.size(), 2);
  EXPECT_EQ(reports.front(), (std::pair<int64_t, int64_t>{0, 2}));
  EXPECT_EQ(reports.back(), (std::pair<int64_t, int64_t>{2, 2}));

  BpeTrainer stopped(options(2));
  stopped.add("abcd abcd");
  EXPECT_ERROR(stopped.train([](int64_t, int64_t) { return false; }), ExitCode::interrupted, "stopped after 0 merges");
}

TEST(BpeTrainer, IsHuggingFaceTokenizers) {
  std::ifstream file(test::source_folder() + "/tests/tokenizer/bpe_training.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 4);
  for (const auto& expected : cases) {
    BpeTrainingOptions some;
    some.vocab_size = expected["vocab_size"];
    some.min_frequency = expected["min_frequency"];
    some.special_tokens = expected["special_tokens"].get<std::vector<std::string>>();
    some.split = expected["split"] == "gpt2" ? SplitPattern::gpt2 : SplitPattern::llama3;
    const BpeModel model = learn(some, {expected["text"]});
    EXPECT_EQ(model.tokens.size(), expected["learned_size"]);
    ASSERT_EQ(model.merges.size(), expected["merges"].size());
    for (size_t i = 0; i < model.merges.size(); ++i) {
      const auto [left, right] = model.merges[i];
      EXPECT_EQ(left, expected["merges"][i][0]) << "merge " << i;
      EXPECT_EQ(right, expected["merges"][i][1]) << "merge " << i;
      EXPECT_EQ(model.tokens[left] + model.tokens[right], model.tokens[expected["merges"][i][2].get<size_t>()])
          << "merge " << i;
    }
  }
}

}  // namespace
}  // namespace gpt::tokenizer
