#include "gpt/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

BpeModel byte_model() {
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  return model;
}

void add_token(BpeModel& model, const std::string& token) { model.tokens.push_back(token); }

void add_merge(BpeModel& model, const std::string& left, const std::string& right) {
  const auto id_of = [&](const std::string& token) {
    return static_cast<int32_t>(std::ranges::find(model.tokens, token) - model.tokens.begin());
  };
  if (id_of(left + right) == model.tokens.size()) add_token(model, left + right);
  model.merges.emplace_back(id_of(left), id_of(right));
}

// Ids 256 "ab", 257 "abc", 258 "bc", 259 "cc", 260 "abcc" (which no merge makes), 261 <|endoftext|>.
BpeModel small_model() {
  BpeModel model = byte_model();
  add_merge(model, "a", "b");
  add_merge(model, "ab", "c");
  add_merge(model, "b", "c");
  add_merge(model, "c", "c");
  add_token(model, "abcc");
  add_token(model, "<|endoftext|>");
  model.special_tokens = {{"<|endoftext|>", 261}};
  return model;
}

// The definition, word for word: find the first pair of the lowest rank, join it, begin again.
Ids merge_by_definition(const BpeModel& model, const std::string& piece) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t rank = 0; rank < model.merges.size(); ++rank) ranks[model.merges[rank]] = rank;
  std::map<std::string, int32_t> id_of;
  for (size_t id = 0; id < model.tokens.size(); ++id) id_of[model.tokens[id]] = static_cast<int32_t>(id);
  Ids ids;
  for (const char c : piece) ids.push_back(id_of.at({c}));
  for (;;) {
    size_t best = ids.size(), best_rank = model.merges.size();
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < best_rank) best = i, best_rank = found->second;
    }
    if (best == ids.size()) return ids;
    ids[best] = id_of.at(model.tokens[ids[best]] + model.tokens[ids[best + 1]]);
    ids.erase(ids.begin() + best + 1);
  }
}

std::string random_bytes(std::mt19937& random, size_t length) {
  std::string text(length, '\0');
  std::ranges::generate(text, [&] { return static_cast<char>(random()); });
  return text;
}

TEST(Bpe, MergesTheLowestRankFirstAndTheLeftmostOfEqual) {
  const BpeTokenizer tokenizer(small_model());
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{257}));
  EXPECT_EQ(tokenizer.encode("bcab"), (Ids{258, 256}));
  EXPECT_EQ(tokenizer.encode("ccc"), (Ids{259, 'c'}));
  EXPECT_EQ(tokenizer.encode("abcc"), (Ids{257, 'c'}));  // not 260: no merges lead there
  EXPECT_EQ(tokenizer.encode("a bc"), (Ids{'a', ' ', 258}));
  EXPECT_EQ(tokenizer.encode(""), (Ids{}));
  EXPECT_EQ(tokenizer.decode(Ids{257, ' ', 261}), "abc <|endoftext|>");
  EXPECT_EQ(tokenizer.name(), "bpe");
  EXPECT_EQ(tokenizer.vocab_size(), 262);
  EXPECT_EQ(tokenizer.end_of_text(), 261);
}

TEST(Bpe, AppendsToTheIdsThatAreThere) {
  Ids ids = {7};
  BpeTokenizer(small_model()).encode("abc ab", ids);
  EXPECT_EQ(ids, (Ids{7, 257, ' ', 256}));
}

TEST(Bpe, IgnoreMergesTakesAWholePieceThatIsAToken) {
  BpeModel model = small_model();
  model.ignore_merges = true;
  add_token(model, std::string(30, 'c'));
  add_token(model, "pad");
  model.special_tokens.push_back({"pad", 263});
  const BpeTokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("abcc"), (Ids{260}));
  EXPECT_EQ(tokenizer.encode(std::string(30, 'c')), (Ids{262}));
  EXPECT_EQ(tokenizer.encode("abccc"), (Ids{257, 259}));
  EXPECT_EQ(tokenizer.encode("pad"), (Ids{'p', 'a', 'd'}));  // a special token is ordinary text here
}

TEST(Bpe, SpecialTokensAreTextInDataAndTokensInPrompts) {
  BpeModel model = small_model();
  add_token(model, "<|endoftext|>2");
  model.special_tokens.push_back({"<|endoftext|>2", 262});
  const BpeTokenizer tokenizer(model);
  const std::string text = "ab<|endoftext|>abc<|endoftext|>2<|endoftext|><|end";
  EXPECT_EQ(tokenizer.encode_with_specials(text), (Ids{256, 261, 257, 262, 261, '<', '|', 'e', 'n', 'd'}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|>").size(), 13);
  EXPECT_EQ(tokenizer.encode_with_specials(""), (Ids{}));
}

TEST(Bpe, ManySpecialTokensAreFoundInLinearTime) {
  BpeModel model = small_model();
  for (int i = 0; i < 100; ++i) {
    const auto id = static_cast<int32_t>(model.tokens.size());
    add_token(model, "<" + std::to_string(i) + ">");
    model.special_tokens.push_back({model.tokens.back(), id});
  }
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "<|endoftext|>";
  EXPECT_EQ(BpeTokenizer(model).encode_with_specials(text), Ids(200'000, 261));
}

// Vocabularies of a few letters, whose merges overlap in every way, and pieces on both sides of every limit.
TEST(Bpe, EqualsTheDefinitionForRandomVocabularies) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    BpeModel model = byte_model();
    std::vector<std::string> known = {"a", "b", "c"};
    while (model.merges.size() < 30) {
      const std::string left = known[random() % known.size()], right = known[random() % known.size()];
      if (left.size() + right.size() > 12) continue;
      const size_t tokens = model.tokens.size();
      add_merge(model, left, right);
      if (model.tokens.size() > tokens) known.push_back(left + right);
      if (std::ranges::count(model.merges, model.merges.back()) > 1) model.merges.pop_back();
    }
    std::ranges::shuffle(model.merges, random);
    const BpeTokenizer tokenizer(model);
    for (const size_t length : {1, 2, 3, 5, 8, 9, 15, 16, 17, 23, 24, 25, 63, 64, 65, 66, 100, 255, 256, 300}) {
      for (int repeat = 0; repeat < 4; ++repeat) {
        std::string piece(length, 'a');
        std::ranges::generate(piece, [&] { return "abc"[random() % 3]; });
        const Ids expected = merge_by_definition(model, piece);
        ASSERT_EQ(tokenizer.encode(piece), expected) << piece;
        ASSERT_EQ(tokenizer.encode(piece), expected) << "the second time: " << piece;
        ASSERT_EQ(tokenizer.encode(piece + ", and " + std::string(40, 'x')).front(), expected.front()) << piece;
      }
    }
  }
}

// Pieces without ASCII are cut where no token lies across; here tokens begin and end within characters, too, and so do pieces.
TEST(Bpe, LongPiecesInPartsEqualTheDefinition) {
  std::mt19937 random(12);
  const std::vector<std::string> parts = {"\u65E5", "\u672C", "\u6587", "\u00E9", "a", "\U00020000", "\xE6", "\x97"};
  for (int round = 0; round < 200; ++round) {
    BpeModel model = byte_model();
    model.ignore_merges = round % 2 == 1;
    std::vector<std::string> texts(20);
    for (std::string& text : texts) {
      const size_t some = round % 4 < 2 ? 6 : parts.size(), length = random() % 120;
      while (text.size() < length) text += parts[random() % some];
    }
    for (int tries = 0; model.merges.size() < 12 && tries < 1000; ++tries) {  // of neighbours in one of the texts
      const std::string& text = texts[random() % texts.size()];
      const auto known = [&](size_t at, size_t bytes) {
        return at + bytes <= text.size() && std::ranges::count(model.tokens, text.substr(at, bytes)) > 0;
      };
      const size_t at = random() % (text.size() + 1), left = 1 + random() % 4, right = 1 + random() % 4;
      if (!known(at, left) || !known(at + left, right)) continue;
      add_merge(model, text.substr(at, left), text.substr(at + left, right));
      if (std::ranges::count(model.merges, model.merges.back()) > 1) model.merges.pop_back();
    }
    add_token(model, "\u65E5\u672C\u6587\u65E5\u672C\u6587");  // which merges hardly lead to
    const BpeTokenizer tokenizer(model);
    texts.push_back(model.tokens.back());
    texts.push_back(model.tokens.back() + "\u00E9");
    for (const std::string& text : texts) {
      Ids expected;
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = piece_end(model.split, text, begin);
        const std::string piece = text.substr(begin, end - begin);
        const auto whole = std::ranges::find(model.tokens, piece);
        const bool is_token = model.ignore_merges && whole != model.tokens.end();
        const Ids ids =
            is_token ? Ids{static_cast<int32_t>(whole - model.tokens.begin())} : merge_by_definition(model, piece);
        expected.insert(expected.end(), ids.begin(), ids.end());
        begin = end;
      }
      ASSERT_EQ(tokenizer.encode(text), expected) << testing::PrintToString(text);
      ASSERT_EQ(tokenizer.encode(text), expected) << "the second time: " << testing::PrintToString(text);
    }
  }
}

// What tiktoken and Hugging Face tokenizers made of the same texts; scripts/make_encoding_fixture.py wrote it.
TEST(Bpe, EqualsTiktokenAndHuggingFace) {
  const auto fixture = nlohmann::json::parse(std::ifstream(test::source_folder() + "/tests/fixtures/encoding.json"));
  const auto bytes_of = [](const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
  };
  BpeModel model;
  for (const auto& token : fixture.at("tokens")) model.tokens.push_back(bytes_of(token));
  model.merges = fixture.at("merges").get<std::vector<std::pair<int32_t, int32_t>>>();
  for (const auto& [name, split] :
       {std::pair{"gpt2", SplitPattern::gpt2}, {"cl100k", SplitPattern::cl100k}, {"llama3", SplitPattern::llama3}}) {
    model.split = split;
    const BpeTokenizer tokenizer(model);
    const auto& expected = fixture.at(name);
    ASSERT_EQ(expected.size(), fixture.at("texts").size());
    ASSERT_GT(expected.size(), 50);
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::string text = fixture.at("texts")[i];
      EXPECT_EQ(tokenizer.encode(text), expected[i].get<Ids>()) << name << ": " << testing::PrintToString(text);
      EXPECT_EQ(tokenizer.decode(expected[i].get<Ids>()), text);
    }
  }
}

TEST(Bpe, DecodeGivesBackEveryByteString) {
  std::mt19937 random(3);
  BpeModel model = small_model();
  for (const SplitPattern split :
       {SplitPattern::gpt2, SplitPattern::cl100k, SplitPattern::llama3, SplitPattern::qwen2, SplitPattern::o200k}) {
    model.split = split;
    const BpeTokenizer tokenizer(model);
    std::string all(256, '\0');
    std::iota(all.begin(), all.end(), '\0');
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
    for (int round = 0; round < 5000; ++round) {
      const std::string text = random_bytes(random, random() % 100);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    }
  }
}

TEST(Bpe, TextCutAtLastCutGivesTheSameIds) {
  std::mt19937 random(5);
  BpeModel model = small_model();
  for (const SplitPattern split :
       {SplitPattern::gpt2, SplitPattern::cl100k, SplitPattern::llama3, SplitPattern::qwen2, SplitPattern::o200k}) {
    model.split = split;
    const BpeTokenizer tokenizer(model);
    const auto text_of = [&](size_t length) {
      std::string text(length, '\0');
      std::ranges::generate(text, [&] { return "abcc  \n\n'!1\xC3\xA9"[random() % 13]; });
      return text;
    };
    for (int round = 0; round < 5000; ++round) {
      const std::string text = text_of(random() % 40), behind = text_of(random() % 10);
      const size_t cut = tokenizer.last_cut(text);
      Ids ids = tokenizer.encode(text.substr(0, cut));
      tokenizer.encode(text.substr(cut) + behind, ids);
      ASSERT_EQ(tokenizer.encode(text + behind), ids) << testing::PrintToString(text) << " cut at " << cut;
    }
  }
}

// With a heap this takes a moment, by the definition days.
TEST(Bpe, AMillionEqualLettersTakeNearlyLinearTime) {
  BpeModel model = byte_model();
  for (size_t length = 1; length < 1024; length *= 2)
    add_merge(model, std::string(length, 'a'), std::string(length, 'a'));
  const Ids ids = BpeTokenizer(model).encode(std::string(1'000'000, 'a'));
  EXPECT_EQ(ids.size(), 1'000'000 / 1024 + 2);  // 512 and 64 are left
  EXPECT_EQ(ids[0], 256 + 9);
}

TEST(Bpe, APieceLongerThanAnyWordIsEncodedInParts) {
  BpeModel model = byte_model();
  add_merge(model, "a", "a");
  const BpeTokenizer tokenizer(model);
  const std::string part = 'b' + std::string(BpeTokenizer::kLongestPiece - 1, 'a');  // an odd number of a
  Ids expected = tokenizer.encode(part);
  EXPECT_EQ(expected.size(), 1 + (BpeTokenizer::kLongestPiece - 2) / 2 + 1);
  expected.insert(expected.end(), {256, 256, 'a'});
  EXPECT_EQ(tokenizer.encode(part + "aaaaa"), expected);
}

// A thread's memo grows with the distinct pieces and starts anew when it has as many as it may: 655,360 of them, or 8 MB of
// those that are long.
TEST(Bpe, MoreDistinctPiecesThanAreRemembered) {
  const BpeTokenizer tokenizer(small_model());
  for (const size_t zeros : {0, 40}) {
    const int pieces = zeros == 0 ? 700'000 : 200'000;
    std::string text;
    Ids expected;
    for (int i = 0; i < pieces; ++i) {
      const std::string number = ' ' + std::string(zeros, '0') + std::to_string(i);
      text += number + "ab";
      expected.insert(expected.end(), number.begin(), number.end());
      expected.push_back(tokenizer.encode("ab").front());
    }
    ASSERT_EQ(tokenizer.encode(text), expected);
    ASSERT_EQ(tokenizer.encode(text), expected) << "the second time";
  }
}

// The memo belongs to a thread, not to a tokenizer.
TEST(Bpe, TokenizersInOneThreadDoNotMixTheirIds) {
  BpeModel reversed = small_model();
  std::ranges::reverse(reversed.merges);
  for (int round = 0; round < 3; ++round) {
    const BpeTokenizer one(small_model());
    EXPECT_EQ(one.encode("abc"), (Ids{257}));
    const BpeTokenizer other(reversed);
    EXPECT_EQ(other.encode("abc"), (Ids{'a', 258}));
    EXPECT_EQ(one.encode("abc"), (Ids{257}));
  }
}

TEST(Bpe, ThreadsShareATokenizer) {
  const BpeTokenizer tokenizer(small_model());
  std::mt19937 random(2);
  std::string text(100'000, 'a');
  std::ranges::generate(text, [&] { return "abc "[random() % 4]; });
  const Ids expected = tokenizer.encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { tokenizer.encode(text, result); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(Bpe, RefusesModelsThatContradictThemselves) {
  const auto expect = [](const std::string& what, const auto& spoil) {
    BpeModel model = small_model();
    spoil(model);
    EXPECT_ERROR(BpeTokenizer(model, "vocab.json"), ExitCode::data, "vocab.json: " + what);
  };
  expect("merge 1 joins ids 256 and 262; the vocabulary of 262 tokens lacks id 262",
         [](BpeModel& m) { m.merges[1].second = 262; });
  expect("merge 0 joins ids -1 and 98; the vocabulary of 262 tokens lacks id -1",
         [](BpeModel& m) { m.merges[0].first = -1; });
  expect("merge 4 joins 'c' and '\\x0A', but 'c\\x0A' is not a token",
         [](BpeModel& m) { m.merges.emplace_back('c', '\n'); });
  expect("ids 256 and 260 are both 'ab'", [](BpeModel& m) { m.tokens[260] = "ab"; });
  expect("special token '<x>' (id 262) is outside the vocabulary",
         [](BpeModel& m) { m.special_tokens.push_back({"<x>", 262}); });
  expect("special token '<x>' (id 260) is 'abcc' in the vocabulary",
         [](BpeModel& m) { m.special_tokens[0] = {"<x>", 260}; });
  expect("special token '' (id 5) is empty", [](BpeModel& m) { m.special_tokens.push_back({"", 5}); });
  expect("special token '<|endoftext|>' (id 261) is listed twice",
         [](BpeModel& m) { m.special_tokens.push_back(m.special_tokens[0]); });
  expect("2097152 tokens and 4 merges; at most 2097151 of each are supported",
         [](BpeModel& m) { m.tokens.resize(2'097'152); });
}

// Vocabularies of others may lack bytes that their texts never had: SmolLM2's has no token for some control characters.
TEST(Bpe, AByteWithoutATokenIsMissedOnlyInATextThatHasIt) {
  BpeModel model = small_model();
  model.tokens['\n'].clear();
  const BpeTokenizer tokenizer(model, "vocab.json");
  EXPECT_EQ(tokenizer.encode("abc"), BpeTokenizer(small_model(), "vocab.json").encode("abc"));
  EXPECT_ERROR((void)tokenizer.encode("abc a\nb"), ExitCode::data, "byte 5: 0x0A has no token in this tokenizer");
}

TEST(Bpe, MergesTheHighestIdsThereCanBe) {
  BpeModel model = byte_model();
  model.tokens.resize(2'097'151);
  const int32_t ab = 2'097'149, abde = 2'097'150, de = (1 << 20) + 'c';  // but for its highest bit, the id of c
  model.tokens[ab] = "ab", model.tokens[abde] = "abde", model.tokens[de] = "de";
  model.merges = {{'a', 'b'}, {'d', 'e'}, {ab, de}};
  const BpeTokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("abdeab"), (Ids{abde, ab}));
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{ab, 'c'}));
}

TEST(Bpe, RefusesIdsOutsideTheVocabulary) {
  const BpeTokenizer tokenizer(small_model());
  EXPECT_ERROR(tokenizer.decode(Ids{262}), ExitCode::data, "token id 262 is outside the vocabulary of 262 tokens");
  EXPECT_ERROR(tokenizer.decode(Ids{-1}), ExitCode::data, "token id -1 is outside");
}

}  // namespace
}  // namespace gpt::tokenizer
