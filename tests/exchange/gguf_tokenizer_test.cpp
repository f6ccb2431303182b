// Our tokenizers in llama.cpp's form. That it makes the same ids of them is what scripts/try_interchange.sh shows.
#include "gpt/exchange/gguf_tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/text.h"
#include "gpt/exchange/tokenizer_files.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/byte_alphabet.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/special_tokens.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;
using Types = std::vector<int32_t>;

GgufTokenizer exported(const tokenizer::Tokenizer& tokenizer, int64_t vocab_size) {
  return gguf_tokenizer(tokenizer, tokenizer::format_by_names(tokenizer), vocab_size, "here");
}

GgufTokenizer exported(const tokenizer::Tokenizer& tokenizer) { return exported(tokenizer, tokenizer.vocab_size()); }

void expect_refused(const tokenizer::Tokenizer& tokenizer, const std::string& why) {
  EXPECT_ERROR(exported(tokenizer), ExitCode::checkpoint, "here: llama.cpp cannot have the same tokenizer: " + why);
}

// Bytes, "ab" by a merge, and "abc", which no merge makes.
tokenizer::BpeModel small_vocabulary(tokenizer::SplitPattern split, bool ignore_merges, bool has_unmade_token) {
  tokenizer::BpeModel model = byte_vocabulary(*tokenizer::make_tokenizer("byte", ""));
  model.tokens.emplace_back("ab");
  model.merges.emplace_back('a', 'b');
  if (has_unmade_token) model.tokens.emplace_back("abc");
  model.split = split;
  model.ignore_merges = ignore_merges;
  return model;
}

TEST(GgufTokenizer, CharactersArePiecesOfSentencePiece) {
  const GgufTokenizer characters = exported(*tokenizer::make_tokenizer("char", "a é語\n"));
  EXPECT_EQ(characters.model, "llama");
  EXPECT_EQ(characters.split, "");
  EXPECT_EQ(characters.tokens, (Texts{"\n", "\u2581", "a", "é", "語", "<|endoftext|>"}));
  EXPECT_EQ(characters.types, (Types{1, 1, 1, 1, 1, 3}));
  EXPECT_EQ(characters.format.end(), 5);
  EXPECT_TRUE(characters.adds_end);
  const GgufTokenizer chats = exported(
      *tokenizer::with_special_tokens(*tokenizer::make_tokenizer("char", "ab"), {"<|im_start|>", "<|im_end|>"}));
  EXPECT_EQ(chats.tokens, (Texts{"a", "b", "<|im_start|>", "<|im_end|>"}));
  EXPECT_EQ(chats.types, (Types{1, 1, 3, 3}));
  EXPECT_EQ(chats.format.end(), 3) << "<|im_end|> ends a text";
  EXPECT_FALSE(chats.adds_end);
  const GgufTokenizer bytes =
      exported(*tokenizer::with_special_tokens(*tokenizer::make_tokenizer("byte", ""), {"<|im_end|>"}));
  EXPECT_EQ(bytes.tokens.at(256), "<|im_end|>");
  EXPECT_EQ(bytes.types.at(256), 3);
  expect_refused(*tokenizer::make_tokenizer("char", "a\u2581b"), "its vocabulary has U+2581");
  expect_refused(*tokenizer::make_tokenizer("char", std::string("a\0b", 3)), "its vocabulary has U+0000");
}

TEST(GgufTokenizer, BytesAreBpeWithAMergeThatNeverHappens) {
  const GgufTokenizer bytes = exported(*tokenizer::make_tokenizer("byte", ""));
  EXPECT_EQ(bytes.model, "gpt2");
  EXPECT_EQ(bytes.split, "gpt-2");
  ASSERT_EQ(bytes.tokens.size(), 257);
  EXPECT_EQ(bytes.tokens['A'], "A");
  EXPECT_EQ(bytes.tokens[' '], "\u0120");
  EXPECT_EQ(bytes.tokens[0xFF], "\u00FF");
  EXPECT_EQ(bytes.tokens[256], "<|endoftext|>");
  EXPECT_EQ(bytes.format.end(), 256);
  EXPECT_EQ(bytes.merges, Texts{"<|endoftext|> <|endoftext|>"});
}

TEST(GgufTokenizer, BytePairsKeepTheirEndOfText) {
  const auto tokenizer = tokenizer::make_tokenizer("bpe:260", " the the the the");
  const GgufTokenizer pairs = exported(*tokenizer, 263);
  const int32_t end = *tokenizer->end_of_text();
  EXPECT_FALSE(pairs.adds_end);
  EXPECT_EQ(pairs.format.end(), end);
  EXPECT_EQ(pairs.tokens[end], "<|endoftext|>");
  EXPECT_EQ(pairs.types[end], 3);
  EXPECT_EQ(pairs.merges, (Texts{"h e", "t he", "\u0120 the"}));
  EXPECT_EQ(Texts(pairs.tokens.end() - 5, pairs.tokens.end()),
            (Texts{"the", "\u0120the", "[PAD260]", "[PAD261]", "[PAD262]"}));
  EXPECT_EQ(Types(pairs.types.end() - 4, pairs.types.end()), (Types{1, 5, 5, 5}));
  EXPECT_ERROR(exported(*tokenizer, 259), ExitCode::checkpoint, "it has 260 tokens, and the model 259");
}

TEST(GgufTokenizer, TheSplitNamesWhatIsMergedToo) {
  const auto split_of = [](tokenizer::SplitPattern split, bool ignore_merges, bool has_unmade_token) {
    return exported(tokenizer::BpeTokenizer(small_vocabulary(split, ignore_merges, has_unmade_token))).split;
  };
  EXPECT_EQ(split_of(tokenizer::SplitPattern::gpt2, false, true), "gpt-2");
  EXPECT_EQ(split_of(tokenizer::SplitPattern::gpt2, true, false), "gpt-2") << "the merges make every token";
  EXPECT_EQ(split_of(tokenizer::SplitPattern::llama3, true, true), "llama-bpe");
  EXPECT_EQ(split_of(tokenizer::SplitPattern::llama3, false, true), "smaug-bpe");
  EXPECT_EQ(split_of(tokenizer::SplitPattern::qwen2, false, true), "qwen2");
  for (const auto& [split, whose] :
       {std::pair{tokenizer::SplitPattern::gpt2, "GPT-2"}, {tokenizer::SplitPattern::qwen2, "Qwen 2"}})
    expect_refused(tokenizer::BpeTokenizer(small_vocabulary(split, true, true)),
                   fmt::format("it splits text as {} does and has ignore_merges", whose));
  expect_refused(tokenizer::BpeTokenizer(small_vocabulary(tokenizer::SplitPattern::cl100k, true, false)),
                 "it splits text as cl100k_base does");
}

TEST(GgufTokenizer, SmolLMsIsTakenFromItsFile) {
  const std::string path = test::source_folder() + "/tests/tokenizer/hugging_face/smollm.json";
  const std::string file = read_file(path, ExitCode::data);
  const auto tokenizer = tokenizer::tokenizer_from_json(file, path);
  const GgufTokenizer smollm = exported(*tokenizer);
  EXPECT_EQ(smollm.model, "gpt2");
  EXPECT_EQ(smollm.split, "smollm");
  EXPECT_EQ(std::ssize(smollm.tokens), tokenizer->vocab_size());
  EXPECT_EQ(Texts(smollm.tokens.begin(), smollm.tokens.begin() + 3),
            (Texts{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}));
  EXPECT_EQ(Types(smollm.types.begin(), smollm.types.begin() + 4), (Types{3, 3, 3, 1}));
  EXPECT_EQ(Texts(smollm.merges.begin(), smollm.merges.begin() + 2), (Texts{"h e", "\u0120 t"}));
  EXPECT_EQ(smollm.format.end(), 0);
  for (int32_t id = 3; id < tokenizer->vocab_size(); ++id)
    ASSERT_EQ(smollm.tokens[id], byte_alphabet::spell(tokenizer->decode({&id, 1}))) << id;
  const std::string added =
      file.substr(file.find("\"added_tokens\""), file.find("\"normalizer\"") - file.find("\"added_tokens\""));
  EXPECT_ERROR(exported(*tokenizer::tokenizer_from_json(replaced(file, added, ""), path)), ExitCode::checkpoint,
               "its vocabulary would have '<|endoftext|>' twice");
  // Digits in threes, and a token that takes the spaces before it.
  for (const auto& [from, to] : {std::pair{"\"individual_digits\":true", "\"individual_digits\":false"},
                                 std::pair{"\"lstrip\":false", "\"lstrip\":true"}}) {
    const std::string other = replaced(file, from, to);
    ASSERT_NE(other, file) << from;
    EXPECT_ERROR(exported(*tokenizer::tokenizer_from_json(other, path)), ExitCode::checkpoint,
                 "here: llama.cpp cannot have");
  }
}

json gemma() {
  return json::parse(read_file(test::source_folder() + "/tests/tokenizer/hugging_face/gemma.json", ExitCode::data));
}

// With a merge for every two tokens that make a third one, as SentencePiece joins them and its converters write them.
json with_all_merges(json file) {
  const json vocabulary = file["model"]["vocab"];
  std::vector<std::string> made;
  for (const json& merge : file["model"]["merges"])
    made.push_back(merge[0].get<std::string>() + merge[1].get<std::string>());
  json merges = json::array();
  for (const std::string& token : made)
    for (size_t cut = 1; cut < token.size(); ++cut)
      if (vocabulary.contains(token.substr(0, cut)) && vocabulary.contains(token.substr(cut)))
        merges.push_back({token.substr(0, cut), token.substr(cut)});
  file["model"]["merges"] = merges;
  return file;
}

TEST(GgufTokenizer, PiecesHaveScoresInTheOrderOfTheMerges) {
  const json file = with_all_merges(gemma());
  const json& vocabulary = file["model"]["vocab"];
  const auto id = [&](const char* token) { return vocabulary[token].get<size_t>(); };
  const GgufTokenizer pieces = exported(*tokenizer::tokenizer_from_json(file.dump(), "here"));
  EXPECT_EQ(pieces.model, "llama");
  EXPECT_FALSE(pieces.adds_space);
  EXPECT_TRUE(pieces.split.empty() && pieces.merges.empty());
  EXPECT_EQ(pieces.scores[id("he")], 0);
  EXPECT_EQ(pieces.scores[id("\u2581t")], -1);
  EXPECT_GT(pieces.scores[id("\u2581t")], pieces.scores[id("h")]) << "a character is no merge";
  EXPECT_EQ(pieces.tokens[id("\u2581t")], "\u2581t");
  EXPECT_EQ(pieces.types[id("\u2581t")], 1);
  EXPECT_EQ(pieces.types[id("<0x0A>")], 6);
  EXPECT_EQ(pieces.types[id("<unk>")], 2);
  EXPECT_EQ(pieces.types[id("<s>")], 3);
  EXPECT_EQ(pieces.types[id("\n\n")], 4) << "found in every text";
}

TEST(GgufTokenizer, PiecesWhoseMergesAreOthersThanScoresAreRefused) {
  const auto exports = [](const json& file) { return exported(*tokenizer::tokenizer_from_json(file.dump(), "here")); };
  EXPECT_ERROR(exports(gemma()), ExitCode::checkpoint, "not every two pieces that make '");
  json file = with_all_merges(gemma());
  json& merges = file["model"]["merges"];
  size_t second = 1;  // of a token that two merges make
  while (merges[second - 1][0].get<std::string>() + merges[second - 1][1].get<std::string>() !=
         merges[second][0].get<std::string>() + merges[second][1].get<std::string>())
    ++second;
  std::swap(merges[second], merges.back());
  EXPECT_ERROR(exports(file), ExitCode::checkpoint, "its merges of one piece do not follow each other");
}

TEST(GgufTokenizer, ASpaceBeforeATextIsAskedFor) {
  json file = with_all_merges(gemma());
  const json replace = file["normalizer"];
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}}, replace}}};
  file["pre_tokenizer"] = nullptr;
  EXPECT_TRUE(exported(*tokenizer::tokenizer_from_json(file.dump(), "here")).adds_space) << "as Llama 2's file has it";
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", "first"},
                           {"split", false}};
  test::CapturedLog log;
  EXPECT_TRUE(exported(*tokenizer::tokenizer_from_json(file.dump(), "here")).adds_space);
  EXPECT_NE(log.text().find("llama.cpp puts a space before what follows a special token"), std::string::npos);
  file["normalizer"] = {{"type", "NFC"}};
  expect_refused(*tokenizer::tokenizer_from_json(file.dump(), "here"), "it is neither a byte-level BPE");
}

// What of its file llama.cpp does not do is said, since only a text that is not composed shows it.
TEST(GgufTokenizer, Qwen2sIsTakenFromItsFile) {
  const std::string path = test::source_folder() + "/tests/tokenizer/hugging_face/qwen2.json";
  const std::string file = read_file(path, ExitCode::data);
  const auto tokenizer = tokenizer::tokenizer_from_json(file, path);
  test::CapturedLog log;
  const GgufTokenizer qwen2 = exported(*tokenizer);
  const std::string said = log.text();
  EXPECT_NE(said.find("here: its tokenizer composes characters (NFC)"), std::string::npos) << said;
  EXPECT_EQ(qwen2.model, "gpt2");
  EXPECT_EQ(qwen2.split, "qwen2");
  EXPECT_EQ(qwen2.format.end(), tokenizer->end_of_text());
  EXPECT_EQ(qwen2.tokens.back(), "<tool_call>");
  EXPECT_EQ(Types(qwen2.types.end() - 5, qwen2.types.end()), (Types{1, 3, 3, 3, 4})) << "found, but no control token";
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string text = tokenizer->decode({&id, 1});
    ASSERT_EQ(qwen2.tokens[id], qwen2.types[id] == 1 ? byte_alphabet::spell(text) : text) << id;
  }
  for (const auto& [from, to] : {std::pair{"\"NFC\"", "\"NFKC\""}, std::pair{"\\p{N}|", "\\p{N}{1,2}|"},
                                 std::pair{"\"Isolated\"", "\"Removed\""}}) {
    const std::string other = replaced(file, from, to);
    ASSERT_NE(other, file) << from;
    EXPECT_ERROR(exported(*tokenizer::tokenizer_from_json(other, path)), ExitCode::checkpoint,
                 "here: llama.cpp cannot have");
  }
}

// Llama 3's, and the empty one that transformers 5 writes: they change no id of the text itself.
TEST(GgufTokenizer, WhatIsPutAroundATextDoesNotMatter) {
  const auto with_processor = [](tokenizer::SplitPattern split, bool ignore_merges, const json& processor) {
    tokenizer::BpeModel model = small_vocabulary(split, ignore_merges, /*has_unmade_token=*/ignore_merges);
    for (const char* text : {"<|begin_of_text|>", "<|end_of_text|>"}) {
      model.special_tokens.push_back({text, static_cast<int32_t>(model.tokens.size())});
      model.tokens.emplace_back(text);
    }
    json file = json::parse(tokenizer::tokenizer_json(model));
    file["post_processor"] = processor;
    return tokenizer::tokenizer_from_json(file.dump(), "here");
  };
  const json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
             begin = {{"SpecialToken", {{"id", "<|begin_of_text|>"}, {"type_id", 0}}}},
             empty = {{"type", "TemplateProcessing"},
                      {"single", {sequence}},
                      {"pair", {sequence}},
                      {"special_tokens", json::object()}},
             llama3 = {{"type", "TemplateProcessing"},
                       {"single", {begin, sequence}},
                       {"pair", {begin, sequence}},
                       {"special_tokens",
                        {{"<|begin_of_text|>",
                          {{"id", "<|begin_of_text|>"}, {"ids", {258}}, {"tokens", {"<|begin_of_text|>"}}}}}}};
  const GgufTokenizer of_llama3 = exported(*with_processor(tokenizer::SplitPattern::llama3, true, llama3));
  EXPECT_EQ(of_llama3.split, "llama-bpe");
  EXPECT_EQ(of_llama3.format.begin, 258);
  EXPECT_EQ(of_llama3.format.end(), 259);
  EXPECT_EQ(of_llama3.merges, Texts{"a b"});
  EXPECT_EQ(exported(*with_processor(tokenizer::SplitPattern::gpt2, false, empty)).split, "gpt-2");
}

TEST(GgufTokenizer, IdsWithoutATokenAreUnused) {
  tokenizer::BpeModel model = byte_vocabulary(*tokenizer::make_tokenizer("byte", ""));
  model.tokens.resize(259);
  model.special_tokens.push_back({"<|endoftext|>", 258});
  model.tokens[258] = "<|endoftext|>";
  const GgufTokenizer holes = exported(tokenizer::BpeTokenizer(std::move(model)), 260);
  EXPECT_EQ(Texts(holes.tokens.end() - 4, holes.tokens.end()),
            (Texts{"[PAD256]", "[PAD257]", "<|endoftext|>", "[PAD259]"}));
  EXPECT_EQ(Types(holes.types.end() - 5, holes.types.end()), (Types{1, 5, 5, 3, 5}));
}

TEST(GgufTokenizer, EveryEndAndTheChatTemplateAreWritten) {
  const auto tokenizer = tokenizer::make_tokenizer("bpe:260", " the the the the");
  const tokenizer::TextFormat format{
      .begin = 3, .pad = 4, .ends = {5, 6}, .tokenizer_end = 6, .chat_template = "{{ messages }}"};
  GgufMetadata metadata;
  add_tokenizer(metadata, gguf_tokenizer(*tokenizer, format, 260, "here"));
  const auto has = [&](const std::string& key, uint32_t value) {
    GgufMetadata entry;
    entry.add("tokenizer." + key, value);
    return metadata.bytes().find(entry.bytes()) != std::string::npos;
  };
  EXPECT_TRUE(has("ggml.bos_token_id", 3));
  EXPECT_TRUE(has("ggml.eos_token_id", 6)) << "the tokenizer's";
  EXPECT_TRUE(has("ggml.eot_token_id", 5)) << "the other one";
  EXPECT_TRUE(has("ggml.padding_token_id", 4));
  GgufMetadata chat;
  chat.add("tokenizer.chat_template", "{{ messages }}");
  EXPECT_NE(metadata.bytes().find(chat.bytes()), std::string::npos);
}

TEST(GgufTokenizer, ATokenThatWouldBeThereTwiceIsRefused) {
  tokenizer::BpeModel model = byte_vocabulary(*tokenizer::make_tokenizer("byte", ""));
  model.special_tokens.push_back({"\u0120", 256});  // how the space is spelled
  model.tokens.emplace_back("\u0120");
  expect_refused(tokenizer::BpeTokenizer(std::move(model)), "its vocabulary would have '\u0120' twice");
}

}  // namespace
}  // namespace gpt::exchange
