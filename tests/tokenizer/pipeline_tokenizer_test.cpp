#include "src/tokenizer/pipeline_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/text_error.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

// Written by scripts/make_tokenizer_fixtures.py.
std::string hugging_face_file(const std::string& name) {
  return read_file(test::source_folder() + "/tests/tokenizer/hugging_face/" + name, ExitCode::data);
}

std::unique_ptr<Tokenizer> hugging_face_tokenizer(const std::string& form) {
  return tokenizer_from_json(hugging_face_file(form + ".json"), form);
}

// The names of the forms, without those that the set-up of another test changes.
std::vector<std::string> forms() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_folder() + "/tests/tokenizer/hugging_face")) {
    const std::string name = entry.path().filename();
    if (name.ends_with("_ids.jsonl")) names.push_back(name.substr(0, name.size() - std::string("_ids.jsonl").size()));
  }
  return names;
}

std::vector<json> samples_of(const std::string& form) {
  std::vector<json> samples;
  std::istringstream lines(hugging_face_file(form + "_ids.jsonl"));
  for (std::string line; std::getline(lines, line);) samples.push_back(json::parse(line));
  return samples;
}

TEST(PipelineTokenizer, GivesTheIdsAndTextsOfHuggingFace) {
  ASSERT_GE(forms().size(), 19);
  for (const std::string& form : forms()) {
    const auto tokenizer = hugging_face_tokenizer(form);
    EXPECT_EQ(tokenizer->name(), "bpe");
    const std::vector<json> samples = samples_of(form);
    EXPECT_GE(samples.size(), 10);
    for (const json& sample : samples) {
      const std::string text = sample["text"];
      const Ids ids = sample["ids_with_specials"];
      EXPECT_EQ(tokenizer->encode(text), sample["ids"].get<Ids>()) << form << ": " << sample["text"];
      EXPECT_EQ(tokenizer->encode_with_specials(text), ids) << form << ": " << sample["text"];
      EXPECT_EQ(tokenizer->decode(ids), sample["decoded"]) << form << ": " << sample["text"];
    }
  }
}

// What generation shows id by id is what decoding gives at once, unless bytes are no UTF-8.
TEST(PipelineTokenizer, PiecesAreTheTextInParts) {
  for (const std::string& form : forms()) {
    const auto tokenizer = hugging_face_tokenizer(form);
    for (const json& sample : samples_of(form)) {
      const std::string decoded = sample["decoded"];
      if (decoded.find("\uFFFD") != std::string::npos) continue;
      std::string joined;
      bool begins_text = true;
      for (const int32_t id : sample["ids_with_specials"].get<Ids>()) {
        joined += tokenizer->piece(id, begins_text);
        begins_text = false;
      }
      EXPECT_EQ(joined, decoded) << form;
    }
  }
}

TEST(PipelineTokenizer, ASpaceIsTakenFromTheBeginningOfATextOnly) {
  const auto tokenizer = hugging_face_tokenizer("llama2_legacy");
  const Ids ids = tokenizer->encode("the the");
  ASSERT_EQ(ids.size(), 2);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_EQ(tokenizer->piece(ids[0], true), "the");
  EXPECT_EQ(tokenizer->piece(ids[0], false), " the");
  EXPECT_EQ(tokenizer->text_bytes()[ids[0]], 4);
}

TEST(PipelineTokenizer, ByteTokensAreBytesUntilTheyAreDecodedTogether) {
  const auto tokenizer = hugging_face_tokenizer("llama2");
  const Ids ids = tokenizer->encode("a語");
  ASSERT_EQ(ids.size(), 4);
  EXPECT_EQ(tokenizer->piece(ids[1], false), "\xE8");
  EXPECT_EQ(tokenizer->decode(ids), "a語");
  EXPECT_EQ(tokenizer->decode(Ids{ids[0], ids[1], ids[2]}), "a\uFFFD\uFFFD");
  EXPECT_ERROR(tokenizer->decode(Ids{-1}), ExitCode::data, "token id -1 is outside the vocabulary of 500 tokens");
}

TEST(PipelineTokenizer, IsWrittenAsItWasRead) {
  for (const std::string& form : forms()) {
    const std::string file = hugging_face_file(form + ".json");
    EXPECT_EQ(tokenizer_from_json(file, form)->to_json(), file) << form;
  }
  const std::string spaced = json::parse(hugging_face_file("qwen2.json")).dump(2);
  EXPECT_EQ(tokenizer_from_json(spaced, "t.json")->to_json(), spaced);
}

TEST(PipelineTokenizer, IsKeptWithoutTheLengthsThatItWasLastUsedWith) {
  json file = json::parse(hugging_face_file("qwen2.json"));
  const json plain = file;
  file["truncation"] = {{"max_length", 5}, {"stride", 0}, {"strategy", "LongestFirst"}, {"direction", "Right"}};
  file["padding"] = {{"strategy", {{"Fixed", 9}}}, {"pad_id", 320}, {"pad_token", "<|endoftext|>"}};
  const auto tokenizer = tokenizer_from_json(file.dump(), "t.json");
  const std::string text = "A text of more than five tokens, which stays as it is.";
  EXPECT_EQ(tokenizer->encode(text), hugging_face_tokenizer("qwen2")->encode(text));
  EXPECT_EQ(json::parse(tokenizer->to_json()), plain);
}

TEST(PipelineTokenizer, KnowsTheEndOfAText) {
  EXPECT_EQ(hugging_face_tokenizer("qwen2")->end_of_text(), 320);
  EXPECT_EQ(hugging_face_tokenizer("llama2")->end_of_text(), 2);
  EXPECT_EQ(hugging_face_tokenizer("deepseek3")->end_of_text(), 1);
  const auto specials = hugging_face_tokenizer("qwen2")->special_tokens();
  EXPECT_EQ(specials.size(), 3);  // a token that is only added is none of them
}

// Texts that are cut in parts have the ids of the whole.
TEST(PipelineTokenizer, CutsWhereTheIdsStay) {
  const std::vector<std::string> parts = {"a",  "the",   " ",           " ", "\n",     "1", "23",
                                          "!",  "'s",    "e\u0301",     "é", "語",     ".", "\u0301",
                                          "\r", "hello", "<tool_call>", "²", "\u00A0", "ſ"};
  std::mt19937 random(5);
  for (const std::string& form : forms()) {
    const auto tokenizer = hugging_face_tokenizer(form);
    int cuts = 0;
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (size_t count = 1 + random() % 15; count > 0; --count) text += parts[random() % parts.size()];
      const size_t cut = tokenizer->last_cut(text);
      ASSERT_LT(cut, std::max<size_t>(text.size(), 1));
      if (cut == 0) continue;
      ++cuts;
      text += parts[random() % parts.size()];
      Ids ids = tokenizer->encode(text.substr(0, cut));
      const Ids more = tokenizer->encode(text.substr(cut));
      ids.insert(ids.end(), more.begin(), more.end());
      ASSERT_EQ(ids, tokenizer->encode(text)) << form << ": " << testing::PrintToString(text) << " at " << cut;
    }
    const bool may_be_cut =
        form == "gpt2" || form == "llama3" || form == "qwen2" || form == "smollm" || form == "gpt4o";
    EXPECT_EQ(cuts > 200, may_be_cut) << form << ": " << cuts;
  }
}

TEST(PipelineTokenizer, RefusesTextThatItCannotEncode) {
  const auto refused = [](const std::string& form, const std::string& text, const std::string& message) {
    const auto tokenizer = hugging_face_tokenizer(form);
    EXPECT_ERROR(tokenizer->encode(text), ExitCode::data, message);
  };
  refused("qwen2", "ab\xFF", "byte 2: 0xFF is not valid UTF-8");
  refused("llama2", "ab\xE8", "byte 2: 0xE8 is not valid UTF-8");
  EXPECT_EQ(hugging_face_tokenizer("llama3")->encode("\xFF").size(), 1);  // bytes only, and nothing looks at characters

  json file = json::parse(hugging_face_file("words.json"));
  file["model"]["unk_token"] = nullptr;
  const auto without_unknown = tokenizer_from_json(file.dump(), "t.json");
  EXPECT_ERROR(without_unknown->encode("the \u20AC"), ExitCode::data, "has no token in this tokenizer");
}

std::string with_pattern(const std::string& pattern) {
  json file = json::parse(hugging_face_file("gpt4o.json"));
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", pattern}};
  return file.dump();
}

TEST(PipelineTokenizer, GivesUpOnAPatternThatTakesForever) {
  const auto tokenizer = tokenizer_from_json(with_pattern("(?:a|b|ab)*c"), "t.json");
  std::string text = "<|endoftext|> x";
  for (int i = 0; i < 40; ++i) text += "ab";
  text += "dc";
  EXPECT_ERROR(tokenizer->encode_with_specials(text), ExitCode::data,
               "byte 13: a regular expression of the tokenizer gives up: match limit exceeded");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("xababc")), "xababc");
}

TEST(PipelineTokenizer, ANormalizerDoesNotFillTheMemory) {
  json file = json::parse(hugging_face_file("qwen2.json"));
  const json longer = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {longer, longer}}};
  const auto tokenizer = tokenizer_from_json(file.dump(), "t.json");
  EXPECT_ERROR(tokenizer->encode(std::string(100'000, 'a')), ExitCode::data,
               "the tokenizer's normalizer makes it too long");
}

// Marks in the wrong order take the square of their number where neighbours are exchanged.
TEST(PipelineTokenizer, NormalizesLongRunsInTheTimeOfShortOnes) {
  const auto tokenizer = hugging_face_tokenizer("qwen2");
  std::string text = "a";
  for (int i = 0; i < 300'000; ++i) text += "\u0301\u0316";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)).size(), text.size() - 1);  // a with acute is one character
}

}  // namespace
}  // namespace gpt::tokenizer
