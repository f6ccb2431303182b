#include "src/tokenizer/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;

// Written by scripts/make_sentencepiece_fixtures.py.
std::string file_of(const std::string& name) {
  return test::source_folder() + "/tests/tokenizer/sentencepiece/" + name;
}

TEST(SentencepieceModel, GivesTheIdsAndTextsOfSentencepiece) {
  for (const std::string name : {"llama", "gemma", "letters"}) {
    const auto tokenizer = make_tokenizer(file_of(name + ".model"), {});
    std::istringstream lines(read_file(file_of(name + "_ids.jsonl"), ExitCode::data));
    int samples = 0;
    for (std::string line; std::getline(lines, line); ++samples) {
      const json sample = json::parse(line);
      const auto text = sample["text"].get<std::string>();
      const std::vector<int32_t> ids = tokenizer->encode(text);
      EXPECT_EQ(ids, sample["ids"].get<std::vector<int32_t>>()) << name << ": " << text;
      if (name != "letters") { EXPECT_EQ(tokenizer->decode(ids), sample["decoded"]) << name << ": " << text; }
    }
    EXPECT_GE(samples, 15);
    EXPECT_EQ(tokenizer_from_json(tokenizer->to_json(), "again")->encode("the question"),
              tokenizer->encode("the question"));
  }
}

TEST(SentencepieceModel, PiecesOfControlAreFoundInPrompts) {
  const auto tokenizer = make_tokenizer(file_of("llama.model"), {});
  EXPECT_EQ(tokenizer->encode_with_specials("<s>"), std::vector<int32_t>{1});
  EXPECT_EQ(tokenizer->encode_with_specials("</s>"), std::vector<int32_t>{2});
  EXPECT_GT(tokenizer->encode("<s>").size(), 2u);
}

std::string field(int number, std::string_view bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + std::string(bytes);
}
std::string flag_field(int number, bool flag) {
  const int key = number << 3;
  std::string bytes;
  if (key >= 0x80) bytes += {static_cast<char>((key & 0x7F) | 0x80), static_cast<char>(key >> 7)};
  if (key < 0x80) bytes += static_cast<char>(key);
  return bytes + static_cast<char>(flag);
}

// A model of two pieces, with what its training and its normalization say.
std::string model_of(const std::string& training, const std::string& normalization) {
  return field(1, field(1, "a")) + field(1, field(1, "b")) + field(2, training) + field(3, normalization);
}

const std::string kBpe{"\x18\x02"}, kSpacesStay = flag_field(4, false);

TEST(SentencepieceModel, WhatItsFilesDoOtherwiseIsRefusedByName) {
  const auto refused = [](const std::string& file, const std::string& why) {
    EXPECT_ERROR(json_of_sentencepiece_model(file, "spm.model"), ExitCode::data,
                 "spm.model: not a tokenizer that this program can read: " + why);
  };
  const std::string good = model_of(kBpe, kSpacesStay);
  EXPECT_EQ(json::parse(json_of_sentencepiece_model(good, "here"))["model"]["vocab"], json({{"a", 0}, {"b", 1}}));
  refused(model_of("", kSpacesStay), "its model_type is UNIGRAM; this program reads BPE");
  refused(model_of("\x18\x03", kSpacesStay), "its model_type is WORD");
  refused(model_of(kBpe, kSpacesStay + field(2, "table")),
          "it normalizes text (normalization_rule_name is not identity)");
  refused(model_of(kBpe, ""), "it removes spaces (remove_extra_whitespaces)");
  refused(model_of(kBpe, kSpacesStay + flag_field(5, false)), "spaces are other than U+2581 before words");
  refused(model_of(kBpe + flag_field(24, true), kSpacesStay), "spaces are other than U+2581 before words");
  refused(good + field(1, field(1, "a")), "pieces 0 and 2 are the same");
  refused(good + field(1, field(1, "\xff")), "a piece is empty or not UTF-8");
  refused(field(2, kBpe), "it has no pieces");
  for (size_t size = 1; size < good.size(); ++size) {  // at its end, between fields, the rest has its defaults
    EXPECT_ERROR(json_of_sentencepiece_model(good.substr(0, size), "spm.model"), ExitCode::data,
                 "spm.model: not a tokenizer");
  }
}

}  // namespace
}  // namespace gpt::tokenizer
