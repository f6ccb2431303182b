// What the files beside tokenizer.json say about a model's texts. The members are those that transformers 5.24 writes and reads.
#include "gpt/exchange/text_format_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;

constexpr int64_t kVocabulary = 259;

// Bytes, and three special tokens behind them.
tokenizer::BpeTokenizer chat_tokenizer() {
  tokenizer::BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    model.special_tokens.push_back({text, static_cast<int32_t>(model.tokens.size())});
    model.tokens.emplace_back(text);
  }
  return tokenizer::BpeTokenizer(std::move(model));
}

class TextFormatFiles : public testing::Test {
 protected:
  std::optional<tokenizer::TextFormat> read() const {
    return read_text_format(folder_.path(), &tokenizer_, kVocabulary);
  }
  void expect_refused(const std::string& file, const std::string& text, const std::string& why) const {
    const std::string path = folder_.file(file, text);
    EXPECT_ERROR(read(), ExitCode::checkpoint, path + why);
    folder_.file(file, "{}");
  }

  const ScratchFolder folder_;
  const tokenizer::BpeTokenizer tokenizer_ = chat_tokenizer();
};

TEST_F(TextFormatFiles, BothConfigurationsNumberTheEnds) {
  EXPECT_EQ(read(), std::nullopt);
  folder_.file("config.json", R"({"bos_token_id": 1, "eos_token_id": 256, "pad_token_id": null})");
  folder_.file("generation_config.json",
               R"({"bos_token_id": 257, "eos_token_id": [258, 300, 7, 258, -1], "pad_token_id": 2})");
  const tokenizer::TextFormat format = read().value();
  EXPECT_EQ(format.begin, 257) << "of generation_config.json";
  EXPECT_EQ(format.ends, (std::vector<int32_t>{258, 7, 256})) << "without those that the model does not have";
  EXPECT_EQ(format.end(), 258);
  EXPECT_EQ(format.pad, 2);
  EXPECT_EQ(format.chat_template, "");
}

TEST_F(TextFormatFiles, TheTokenizersFilesNameThem) {
  folder_.file("config.json", R"({"eos_token_id": [256, 258]})");
  folder_.file("tokenizer_config.json",
               R"({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>", "lstrip": false},
                                            "pad_token": null, "unk_token": "nowhere", "chat_template": "old"})");
  folder_.file("special_tokens_map.json", R"({"pad_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})");
  tokenizer::TextFormat format = read().value();
  EXPECT_EQ(format.begin, 257);
  EXPECT_EQ(format.ends, (std::vector<int32_t>{256, 258}));
  EXPECT_EQ(format.end(), 258) << "as the tokenizer has it";
  EXPECT_EQ(format.pad, 256);
  EXPECT_EQ(format.unknown, std::nullopt);
  EXPECT_EQ(format.chat_template, "old");
  folder_.file("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]})");
  EXPECT_EQ(read()->chat_template, "b");
  folder_.file("chat_template.jinja", "{{ messages }}\n");
  EXPECT_EQ(read()->chat_template, "{{ messages }}\n");
}

// Post-processors as Llama 2, Llama 3 and RoBERTa have them.
TEST_F(TextFormatFiles, ThePostProcessorSaysWhatPrecedesATextAndNotWhatFollows) {
  const auto prefix = [this](const std::string& processor) {
    folder_.file("tokenizer.json",
                 R"({"model": {"vocab": {"post_processor": 1}}, "post_processor": )" + processor + "}");
    const std::optional<tokenizer::TextFormat> format = read();
    return format ? format->prefix : std::vector<int32_t>();
  };
  const std::string text = R"({"Sequence": {"id": "A", "type_id": 0}})",
                    begin = R"({"SpecialToken": {"id": "<|im_start|>", "type_id": 0}})",
                    end = R"({"SpecialToken": {"id": "<|im_end|>", "type_id": 0}})";
  const auto single = [&](const std::string& pieces) {
    return R"({"type": "TemplateProcessing", "single": [)" + pieces + R"(], "pair": [], "special_tokens": {}})";
  };
  EXPECT_EQ(prefix(single(begin + "," + text)), std::vector<int32_t>{257});
  EXPECT_EQ(prefix(single(begin + "," + text + "," + end)), std::vector<int32_t>{257});
  EXPECT_EQ(prefix(single(text + "," + end)), std::vector<int32_t>());
  EXPECT_EQ(prefix(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + single(begin + "," + text) +
                   "]}"),
            std::vector<int32_t>{257});
  EXPECT_EQ(prefix(R"({"type": "RobertaProcessing", "sep": ["<|im_end|>", 258], "cls": ["<|endoftext|>", 256]})"),
            std::vector<int32_t>{256});
  for (const char* nothing : {"null", R"({"type": "ByteLevel"})", R"({"type": "TemplateProcessing"})", "[]", "3"})
    EXPECT_EQ(prefix(nothing), std::vector<int32_t>()) << nothing;
  tokenizer::TextFormat kept;
  kept.prefix = {257, 5};
  EXPECT_EQ(nlohmann::ordered_json(kept).get<tokenizer::TextFormat>(), kept);
}

TEST_F(TextFormatFiles, WhatTheyCannotSayIsRefusedByName) {
  expect_refused("config.json", "[]", " cannot be used: it is no JSON object");
  expect_refused("generation_config.json", R"({"eos_token_id": "2"})",
                 ": eos_token_id is \"2\"; a number or a list of numbers is needed");
  expect_refused("generation_config.json", R"({"eos_token_id": [1, null]})", ": eos_token_id is [1,null]; a number");
  expect_refused("tokenizer_config.json", R"({"eos_token": 2})", ": eos_token is 2; the text of a token is needed");
  expect_refused("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "a"}]})",
                 ": chat_template is [{\"name\":\"rag\",\"template\":\"a\"}]; a template, or a list with one");
}

TEST_F(TextFormatFiles, WrittenAndReadTheyAreTheSame) {
  tokenizer::TextFormat format;
  format.begin = 257, format.pad = 258, format.unknown = 256, format.tokenizer_end = 258;
  format.ends = {256, 258};
  folder_.file("config.json", numbered_tokens(format).dump());
  folder_.file("generation_config.json", generation_config_json(format).dump());
  folder_.file("tokenizer_config.json", tokenizer_config_json(tokenizer_, format, 64).dump());
  EXPECT_EQ(read(), format);
  EXPECT_EQ(json::parse(generation_config_json(format).dump()),
            json::parse(R"({"bos_token_id": 257, "eos_token_id": [256, 258], "pad_token_id": 258, "top_k": 0})"));
  format.ends = {258};
  EXPECT_EQ(numbered_tokens(format)["eos_token_id"], 258);
}

TEST_F(TextFormatFiles, TheClassTakesTheFileAsItIs) {
  const auto config = [](const tokenizer::Tokenizer& tokenizer) {
    return json::parse(tokenizer_config_json(tokenizer, tokenizer::format_by_names(tokenizer), 64).dump());
  };
  const json plain = json::parse(R"({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64,
                                     "clean_up_tokenization_spaces": false})");
  EXPECT_EQ(config(*tokenizer::make_tokenizer("byte", "")), plain);
  const json named = config(*tokenizer::make_tokenizer("bpe:300", "the cat and the dog"));
  for (const char* key : {"bos_token", "eos_token", "unk_token"})
    EXPECT_EQ(named.value(key, ""), "<|endoftext|>") << key;
  EXPECT_FALSE(named.contains("pad_token"));
}

TEST_F(TextFormatFiles, AClassThatSplitsOtherwiseIsSaid) {
  const auto said = [&](const std::string& pre_tokenizer, const std::string& name) {
    folder_.file("tokenizer.json", R"({"normalizer": null, "pre_tokenizer": )" + pre_tokenizer + "}");
    folder_.file("tokenizer_config.json", name.empty() ? "{}" : R"({"tokenizer_class": ")" + name + "\"}");
    return class_that_splits_otherwise(folder_.path());
  };
  const std::string own = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})",
                    other =
                        R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, )" +
                        own + "]}";
  folder_.file("config.json", R"({"model_type": "llama"})");
  EXPECT_EQ(said(own, "GPT2Tokenizer"), "");
  EXPECT_EQ(said(other, "PreTrainedTokenizerFast"), "");
  EXPECT_EQ(said(other, ""), "");
  const std::string line = said(other, "GPT2TokenizerFast");
  EXPECT_NE(line.find("/tokenizer.json splits text otherwise than the class GPT2Tokenizer"), std::string::npos) << line;
  folder_.file("config.json", R"({"model_type": "gpt2"})");
  EXPECT_EQ(said(other, ""), line) << "the class of such models";
}

}  // namespace
}  // namespace gpt::exchange
