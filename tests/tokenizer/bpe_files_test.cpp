#include "gpt/tokenizer/bpe_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/byte_alphabet.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "src/tokenizer/tiktoken.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;
using Pairs = std::vector<std::pair<int32_t, int32_t>>;

// Written by scripts/make_tokenizer_fixtures.py.
std::string fixture(const std::string& name) {
  return read_file(test::source_folder() + "/tests/tokenizer/hugging_face/" + name, ExitCode::data);
}

void expect_hugging_face_ids(const Tokenizer& tokenizer, const std::string& name) {
  const std::string lines = fixture(name);
  int samples = 0;
  for (size_t begin = 0; begin < lines.size(); ++samples) {
    const size_t end = lines.find('\n', begin);
    const json sample = json::parse(lines.substr(begin, end - begin));
    const std::string text = sample["text"];
    EXPECT_EQ(tokenizer.encode(text), sample["ids"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer.encode_with_specials(text), sample["ids_with_specials"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer.decode(sample["ids"].get<Ids>()), text);
    begin = end + 1;
  }
  EXPECT_EQ(samples, 10);
}

TEST(TokenizerJsonFile, EncodesAsHuggingFaceDoes) {
  const BpeTokenizer gpt2(parse_tokenizer_json(fixture("gpt2.json"), "gpt2.json"));
  expect_hugging_face_ids(gpt2, "gpt2_ids.jsonl");
  EXPECT_EQ(gpt2.end_of_text(), 0);
  EXPECT_EQ(gpt2.model().split, SplitPattern::gpt2);

  const BpeTokenizer llama3(parse_tokenizer_json(fixture("llama3.json"), "llama3.json"));
  expect_hugging_face_ids(llama3, "llama3_ids.jsonl");
  EXPECT_EQ(llama3.model().split, SplitPattern::llama3);
  EXPECT_TRUE(llama3.model().ignore_merges);
  EXPECT_EQ(llama3.special_tokens().back(), (SpecialToken{"<|endoftext|>", 322}));
}

// To the byte, so that what Hugging Face wrote and can read is what we write.
TEST(TokenizerJsonFile, IsWrittenAsHuggingFaceWritesIt) {
  const std::string file = fixture("gpt2.json");
  EXPECT_EQ(tokenizer_json(parse_tokenizer_json(file, "gpt2.json")), file);
}

TEST(TokenizerJsonFile, ComesBackEqual) {
  for (const SplitPattern split :
       {SplitPattern::gpt2, SplitPattern::cl100k, SplitPattern::llama3, SplitPattern::qwen2, SplitPattern::o200k}) {
    BpeModel model = parse_tokenizer_json(fixture("llama3.json"), "llama3.json");
    model.split = split;
    model.ignore_merges = split == SplitPattern::cl100k;
    model.tokens.push_back("a \"quoted\" \\ été \n special");
    model.special_tokens.push_back({model.tokens.back(), static_cast<int32_t>(model.tokens.size()) - 1});
    EXPECT_EQ(parse_tokenizer_json(tokenizer_json(model), "again"), model);
  }
}

// The file of a small tokenizer with `change` made to it.
std::string changed(const std::function<void(json&)>& change, const char* name = "gpt2.json") {
  json file = json::parse(fixture(name));
  change(file);
  return file.dump();
}

TEST(TokenizerJsonFile, ReadsWhatOtherVersionsWrite) {
  const BpeModel gpt2 = parse_tokenizer_json(fixture("gpt2.json"), "");
  const auto reads_as_gpt2 = [&](const std::function<void(json&)>& change) {
    EXPECT_EQ(parse_tokenizer_json(changed(change), "t.json"), gpt2);
  };
  reads_as_gpt2([](json& file) {  // merges in one text, as before 0.20
    for (json& merge : file["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  });
  reads_as_gpt2([](json& file) {  // the file that OpenAI's GPT-2 has there
    for (const char* key : {"type", "byte_fallback", "ignore_merges"}) file["model"].erase(key);
    file["model"]["continuing_subword_prefix"] = file["model"]["end_of_word_suffix"] = "";
    file["pre_tokenizer"].erase("use_regex");
    file["post_processor"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}};
    file["added_tokens"][0]["normalized"] = true;
  });
  reads_as_gpt2([](json& file) { file["model"]["vocab"].erase("<|endoftext|>"); });

  const BpeModel llama3 = parse_tokenizer_json(fixture("llama3.json"), "");
  const std::string removed = changed(
      [](json& file) {  // keeps the matches: the same
        file["pre_tokenizer"]["pretokenizers"][0].update({{"behavior", "Removed"}, {"invert", true}});
        file["post_processor"] = {{"type", "Sequence"},
                                  {"processors", {file["post_processor"], {{"type", "ByteLevel"}}}}};
      },
      "llama3.json");
  EXPECT_EQ(parse_tokenizer_json(removed, "t.json"), llama3);
}

TEST(TokenizerJsonFile, RefusesByNameWhatItDoesNotImplement) {
  struct Case {
    const char* pointer;  // what is replaced
    json value;
    const char* message;
  };
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const json sixty(60, {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "NFC"}}}}});
  const auto decoders = [](const json& list) { return json{{"type", "Sequence"}, {"decoders", list}}; };
  const Case cases[] = {
      {"/normalizer",
       {{"type", "Lowercase"}},
       "normalizer is \"Lowercase\", which this program does not support (only NFC, "},
      {"/normalizer", {{"type", "NFC"}, {"unheard_of", 1}}, "normalizer.unheard_of is 1, which"},
      {"/normalizer", {{"type", "Prepend"}}, "normalizer.prepend is null; a string is needed"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}},
       "normalizer.pattern.Regex is \"(a\", which this program does not support: it has a ( without a ): use another"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}},
       "normalizer.pattern.String is \"\"; a text that is not empty is needed"},
      {"/normalizer", {{"type", "Replace"}, {"pattern", "a"}, {"content", ""}}, "normalizer.pattern is \"a\"; {"},
      {"/normalizer", {{"type", "Strip"}, {"strip_left", 1}}, "normalizer.strip_left is 1; true or false is needed"},
      {"/normalizer", {{"type", "Sequence"}, {"normalizers", sixty}}, "there are more than 100 steps"},
      {"/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "pre_tokenizer is \"BertPreTokenizer\", which"},
      {"/pre_tokenizer/unheard_of", 1, "pre_tokenizer.unheard_of is 1, which"},
      {"/pre_tokenizer/use_regex", 7, "pre_tokenizer.use_regex is 7; true or false is needed"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "UnicodeScripts"}}, byte_level}}},
       "pre_tokenizer.pretokenizers[0] is \"UnicodeScripts\", which"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {byte_level, byte_level}}},
       "pre_tokenizer is \"Sequence\", which this program does not support: it has several ByteLevel"},
      {"/pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", {{{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "isolated"}}, byte_level}}},
       "pre_tokenizer.pretokenizers[0].behavior is \"isolated\"; Isolated, Removed"},
      {"/pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "ab"}},
       "pre_tokenizer.replacement is \"ab\"; one character"},
      {"/pre_tokenizer", nullptr, "decoder is \"ByteLevel\", which"},
      {"/post_processor", {{"type", "Unheard"}}, "post_processor is \"Unheard\", which"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder is \"WordPiece\", which"},
      {"/decoder", nullptr, "decoder is null, which"},
      {"/model/type", "Unigram", "model is \"Unigram\", which this program does not support (only BPE)"},
      {"/model/type", "WordPiece", "model is \"WordPiece\", which this program does not support (only BPE)"},
      {"/model/dropout", 0.1, "model.dropout is 0.1, which"},
      {"/model/fuse_unk", 1, "model.fuse_unk is 1; true or false is needed"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix is \"##\", which"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix is \"</w>\", which"},
      {"/model/unheard_of", true, "model.unheard_of is true, which"},
      {"/unheard_of", true, "unheard_of is true, which"},
      {"/version", "2.0", "version is \"2.0\", which"},
      {"/added_tokens/0/special", 7, "added_tokens[0].special is 7; true or false is needed"},
      {"/added_tokens/0/content", "", "added_tokens[0].content is \"\"; a text that is not empty"},
      {"/added_tokens/0/content", std::string(1025, 'a'), "added_tokens[0].content is \"aaa"},
  };
  for (const Case& wrong : cases) {
    const std::string file = changed([&](json& whole) { whole[json::json_pointer(wrong.pointer)] = wrong.value; });
    EXPECT_ERROR(parse_tokenizer_json(file, "t.json"), ExitCode::data, wrong.message);
  }
  const Case of_characters[] = {
      {"/decoder", decoders({{{"type", "Fuse"}}, {{"type", "ByteFallback"}}}),
       "decoder.decoders[1] is \"ByteFallback\", which this program does not support: it comes after Fuse"},
      {"/decoder", decoders({{{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}}}),
       "decoder.decoders[0].stop is 1, which this program does not support: the end of a text that grows is not known"},
      {"/decoder", decoders({{{"type", "Fuse"}}, {{"type", "Metaspace"}, {"replacement", "_"}}}),
       "decoder.decoders[1] is \"Metaspace\", which this program does not support: it comes after another decoder"},
      {"/decoder", nullptr, "decoder is null, which"},
      {"/normalizer", {{"type", "Prepend"}, {"prepend", "_"}}, "pre_tokenizer.prepend_scheme is \"first\", which"},
      {"/model/unk_token", "<none>", "model.unk_token is \"<none>\"; a token of the vocabulary is needed"},
  };
  for (const Case& wrong : of_characters) {
    const std::string file =
        changed([&](json& whole) { whole[json::json_pointer(wrong.pointer)] = wrong.value; }, "llama2.json");
    EXPECT_ERROR(parse_tokenizer_json(file, "t.json"), ExitCode::data, std::string("t.json: ") + wrong.message);
  }
  EXPECT_ERROR(parse_tokenizer_json(fixture("llama2.json"), "t.json"), ExitCode::data,
               "t.json: the tokenizer is more than");
}

// With the tokens of all bytes there is nothing that could be unknown.
TEST(TokenizerJsonFile, AnUnknownTokenMattersOnlyWhereBytesAreMissing) {
  const auto with_unknown = [](bool lacks_a_byte) {
    return changed([&](json& file) {
      file["model"]["unk_token"] = "<|endoftext|>";
      file["model"]["byte_fallback"] = true;
      if (!lacks_a_byte) return;
      file["model"]["vocab"]["never"] = file["model"]["vocab"]["\u0100"];
      file["model"]["vocab"].erase("\u0100");
    });
  };
  EXPECT_EQ(parse_tokenizer_json(with_unknown(false), "t.json"), parse_tokenizer_json(fixture("gpt2.json"), "t.json"));
  EXPECT_ERROR(
      parse_tokenizer_json(with_unknown(true), "t.json"), ExitCode::data,
      "t.json: model.unk_token is \"<|endoftext|>\", which this program does not support: some bytes have no token");
}

TEST(TokenizerJsonFile, IdsMayBeUnused) {
  const auto whole = tokenizer_from_json(fixture("gpt2.json"), "t.json");
  const auto holes = tokenizer_from_json(changed([](json& file) {
                                           file["model"]["vocab"]["<|endoftext|>"] = 330;
                                           file["added_tokens"][0]["id"] = 330;
                                         }),
                                         "t.json");
  EXPECT_EQ(holes->vocab_size(), 331);
  EXPECT_EQ(holes->end_of_text(), 330);
  EXPECT_EQ(holes->encode("the other path"), whole->encode("the other path"));
  for (const int32_t unused : {0, 320, 329}) EXPECT_EQ(holes->decode({&unused, 1}), "") << unused;
  const auto again = tokenizer_from_json(holes->to_json(), "again");
  EXPECT_EQ(again->to_json(), holes->to_json());
  EXPECT_EQ(again->vocab_size(), 331);
}

TEST(TokenizerJsonFile, RefusesWhatContradictsItself) {
  const auto refused = [](const std::function<void(json&)>& change, const std::string& message) {
    EXPECT_ERROR(parse_tokenizer_json(changed(change), "t.json"), ExitCode::data, "t.json: " + message);
  };
  const auto vocabulary = [](json& file) -> json& { return file["model"]["vocab"]; };
  refused([&](json& f) { vocabulary(f)["!"] = BpeModel::kMostTokens; },
          "token \"!\" has id 2097151; a number from 0 to");
  refused([&](json& f) { vocabulary(f)["!"] = -1; }, "token \"!\" has id -1;");
  refused([&](json& f) { vocabulary(f)["!"] = 1.5; }, "token \"!\" has id 1.5;");
  refused([&](json& f) { vocabulary(f)["!"] = 2; }, "token \"\\\"\" has id 2, which another token also has");
  refused([&](json& f) { vocabulary(f)[""] = 320; }, "the token with id 320 is empty");
  refused([&](json& f) { vocabulary(f)["a b"] = 320; },
          "token \"a b\" is not spelled in the alphabet of byte-level BPE");
  refused([&](json& f) { vocabulary(f)["\u4eac"] = 320; }, "token \"\u4eac\" is not spelled");
  refused([&](json& f) { vocabulary(f) = json::array(); }, "model.vocab is []; an object of tokens and ids is needed");
  refused([](json& f) { f["added_tokens"][0]["id"] = 7; },
          "added_tokens[0].id is 7; 0, as in the vocabulary, is needed");
  refused([](json& f) { f["added_tokens"].push_back(f["added_tokens"][0]); },
          "added_tokens[1].content is \"<|endoftext|>\"; a token");
  refused([](json& f) { f["added_tokens"][0]["content"] = 7; }, "added_tokens[0].content is 7; a string is needed");
  refused([](json& f) { f["added_tokens"] = 7; }, "added_tokens is 7; a list is needed");
  refused([](json& f) { f["added_tokens"][0] = 7; }, "added_tokens[0] is 7; an object is needed");
  refused([](json& f) { f["added_tokens"][0].erase("id"); }, "added_tokens[0].id is null; 0, as in");
  refused(
      [](json& f) {
        for (const int id : {321, 320}) {
          json token = f["added_tokens"][0];
          token.update({{"id", id}, {"content", "<" + std::to_string(id) + ">"}});
          f["added_tokens"].push_back(token);
        }
      },
      "added_tokens[2].id is 320; an id above that of the token before is needed");
  refused([](json& f) { f["model"]["merges"][0] = {"zz", "e"}; },
          "merge 0 has \"zz\", which is not a token of the vocabulary");
  refused([](json& f) { f["model"]["merges"][1] = f["model"]["merges"][0]; },
          "merge 1 of \"h\" and \"e\" is listed twice");
  refused([](json& f) { f["model"]["merges"][0] = "he"; }, "model.merges[0] is \"he\"; a pair of tokens is needed");
  refused([](json& f) { f["model"]["merges"][0] = "h e l"; }, "model.merges[0] is \"h e l\"; a pair");
  refused([](json& f) { f["model"]["merges"][0] = {"h", "e", "l"}; }, "model.merges[0] is [\"h\",\"e\",\"l\"]; a pair");
  refused([](json& f) { f["model"]["merges"] = nullptr; }, "model.merges is null; a list is needed");
  refused([](json& f) { f["model"] = 7; }, "model is 7; an object is needed");

  // A vocabulary that lacks what its merges make: no parser's business, but nobody's tokenizer.
  const std::string file = changed([](json& f) { f["model"]["merges"].push_back({"z", "z"}); });
  EXPECT_ERROR(BpeTokenizer(parse_tokenizer_json(file, "t.json"), "t.json"), ExitCode::data,
               "t.json: merge 63 joins 'z' and 'z', but 'zz' is not a token");
}

TEST(TokenizerJsonFile, WritesNothingThatItWouldNotRead) {
  BpeModel model;
  model.tokens = {"special"};
  model.special_tokens = {{std::string(6 << 20, '\x01'), 0}};  // "\\u0001" for each, twice
  EXPECT_ERROR(tokenizer_json(model), ExitCode::data, "the tokenizer has 75,49");
}

TEST(TokenizerJsonFile, RefusesWhatIsNoJson) {
  EXPECT_ERROR(parse_tokenizer_json("{\"model\": ", "t.json"), ExitCode::data,
               "t.json: not a tokenizer that this program can read: invalid JSON at byte");
  EXPECT_ERROR(parse_tokenizer_json("[]", "t.json"), ExitCode::data, "t.json: the JSON is array; an object is needed");
  EXPECT_ERROR(parse_tokenizer_json("{\"a\": 1e999}", "t.json"), ExitCode::data, "a number out of range");
  EXPECT_ERROR(parse_tokenizer_json("\"\\ud800\"", "t.json"), ExitCode::data, "invalid JSON at byte");
  EXPECT_ERROR(parse_tokenizer_json(std::string(100000, '['), "t.json"), ExitCode::data,
               "t.json: JSON nested more than 64 levels deep");
  EXPECT_ERROR(parse_tokenizer_json(std::string((64 << 20) + 1, ' '), "t.json"), ExitCode::data,
               "t.json: a file of 67108865 bytes is too large for a tokenizer");
}

// All 256 bytes in the order of GPT-2's alphabet, as encoder.json; further tokens behind them.
std::string encoder_json(const std::vector<std::string>& more) {
  json ids = json::object();
  for (int byte = 0; byte < 256; ++byte) ids[byte_alphabet::spell(std::string(1, static_cast<char>(byte)))] = byte;
  for (const std::string& token : more) ids[token] = ids.size();
  return ids.dump();
}

TEST(Gpt2Files, AreReadWithTheirSpecialTokens) {
  const BpeModel model = parse_gpt2_files(encoder_json({"\u0120a", "\u0120ab", "<|endoftext|>"}),
                                          "#version: 0.2\n\u0120 a\r\n\u0120a b\n", "both");
  EXPECT_EQ(model.tokens[256], " a");
  EXPECT_EQ(model.merges, (Pairs{{' ', 'a'}, {256, 'b'}}));
  EXPECT_EQ(model.special_tokens, (std::vector<SpecialToken>{{"<|endoftext|>", 258}}));
  EXPECT_FALSE(model.ignore_merges);
  EXPECT_EQ(BpeTokenizer(model).encode(" abc a"), (Ids{257, 'c', 256}));
  const auto specials = parse_gpt2_files(encoder_json({"<s>", "</s>"}), "", "both").special_tokens;
  EXPECT_EQ(specials, (std::vector<SpecialToken>{{"<s>", 256}, {"</s>", 257}}));
  EXPECT_EQ(parse_gpt2_files(encoder_json({"#b"}), "# b", "").merges, (Pairs{{'#', 'b'}}));  // without the header
}

TEST(Gpt2Files, ThatContradictEachOtherAreRefused) {
  const auto refused = [](const std::vector<std::string>& tokens, const std::string& merges,
                          const std::string& message) {
    EXPECT_ERROR(parse_gpt2_files(encoder_json(tokens), "#version: 0.2\n" + merges, "both"), ExitCode::data,
                 "both: " + message);
  };
  refused({"ab"}, "",
          "token \"ab\" is neither a byte nor made by a merge: vocabulary and merges do not belong together");
  refused({"ab"}, "a b\nab c\nabc d\n", "merge 2 has \"abc\", which is not a token of the vocabulary");
  refused({"ab"}, "a b\na b\n", "merge 1 of \"a\" and \"b\" is listed twice");
  refused({"ab"}, "ab\n", "line 2 of the merges is \"ab\"; two tokens separated by a space are needed");
  refused({"ab"}, "a b c\n", "line 2 of the merges is \"a b c\"");
  refused({"ab"}, "a \n", "line 2 of the merges is \"a \"");
  refused({"ab"}, "a b\n\xFF\xFE c\n", "merge 1 has \"\uFFFD\uFFFD\"");
  EXPECT_ERROR(parse_gpt2_files("[]", "", "both"), ExitCode::data, "both: the vocabulary is array");
  EXPECT_ERROR(BpeTokenizer(parse_gpt2_files(encoder_json({}), "a b\n", "both"), "both"), ExitCode::data,
               "both: merge 0 joins 'a' and 'b', but 'ab' is not a token");
}

// set-up installs it; without it this test says what to run.
TEST(Gpt2Vocabulary, IsWhole) {
  const BpeTokenizer gpt2(gpt2_vocabulary());
  EXPECT_EQ(gpt2.vocab_size(), 50257);
  EXPECT_EQ(gpt2.end_of_text(), 50256);
  EXPECT_EQ(gpt2.model().merges.size(), 50000u);
  EXPECT_EQ(gpt2.encode("Hello world"), (Ids{15496, 995}));
  EXPECT_EQ(gpt2.encode_with_specials("Hello<|endoftext|>"), (Ids{15496, 50256}));
  EXPECT_EQ(parse_tokenizer_json(gpt2.to_json(), "gpt2"), gpt2.model());
}

TEST(Gpt2Vocabulary, IsRefusedWhenDamaged) {
  const ScratchFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directories(folder / "data/gpt2");
  std::ofstream(folder / "data/gpt2/encoder.json") << encoder_json({});
  std::filesystem::current_path(folder.path());
  EXPECT_ERROR(gpt2_vocabulary(), ExitCode::data, "data/gpt2/encoder.json: ");
  EXPECT_ERROR(gpt2_vocabulary(), ExitCode::data, "bytes are not GPT-2's vocabulary; run ./scripts/get_data.sh");
  std::filesystem::current_path(before);
}

TEST(Tiktoken, ReadsRanks) {
  EXPECT_EQ(read_tiktoken_ranks("AA== 0\nIGE= 1\n4pyT 2\r\n", "t"),
            (std::vector<std::string>{std::string(1, '\0'), " a", "\u2713"}));
  const auto refused = [](const std::string& text, const std::string& message) {
    EXPECT_ERROR(read_tiktoken_ranks(text, "t"), ExitCode::data, "t: " + message);
  };
  for (const char* line : {"YQ== 0\nYg= 1", "YQ== 0\nYg==", "YQ== 0\nYg== ", "YQ== 0\nYg== x", "YQ== 0\nYg== 1x",
                           "YQ== 0\n 1", "YQ== 0\nY!== 1", "YQ== 0\nY=== 1", "YQ== 0\nYg== -1"}) {
    refused(line, "line 2 is not a token in base64, a space and its rank");
  }
  refused("YQ== 0\nYg== 2", "line 2 has rank 2; 1 is expected");
  refused("YQ== 99999999999999999999", "line 1 is not a token");
  std::string long_token;
  for (int i = 0; i < 100; ++i) long_token += "YWFh";
  refused(long_token + " 0", "line 1 has a token of 300 bytes; at most 256 are read");
}

TEST(Tiktoken, MergesAreThePairThatLowerRanksEndIn) {
  // "aaa" is made as (aa, a), and "abcd" as (ab, cd) although (abc, d) are tokens too.
  const std::vector<std::string> tokens = {"a", "b", "c", "d", "aa", "aaa", "ab", "cd", "abc", "abcd"};
  EXPECT_EQ(merges_of_ranks(tokens, "t"), (Pairs{{0, 0}, {4, 0}, {0, 1}, {2, 3}, {6, 2}, {6, 7}}));
  EXPECT_EQ(merges_of_ranks({"a", "b", "c", "abc"}, "t"), Pairs{});  // only as a whole piece
  EXPECT_ERROR(merges_of_ranks({"a", "b", "c", "abc", "ab"}, "t"), ExitCode::data,
               "t: the token of rank 3 needs tokens of higher ranks");
  EXPECT_ERROR(merges_of_ranks({"a", "b", "a"}, "t"), ExitCode::data, "t: ranks 0 and 2 are the same token");
}

std::string base64(const std::string& bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : digits[bits >> (18 - 6 * j) & 63];
  }
  return text;
}

// `count` ranks: the bytes, then pairs of bytes, then triples.
std::string tiktoken_file(size_t count) {
  std::string file;
  for (size_t rank = 0; rank < count; ++rank) {
    std::string token(1, static_cast<char>(rank & 255));
    if (rank >= 256) token.insert(0, 1, static_cast<char>(rank >> 8));
    if (rank >= 65536)
      token = std::string("\0\1", 2) + static_cast<char>((rank - 65536) >> 8) + static_cast<char>(rank & 255);
    file += base64(token) + " " + std::to_string(rank) + "\n";
  }
  return file;
}

TEST(Tiktoken, TheNumberOfRanksTellsTheVocabulary) {
  const BpeModel gpt2 = parse_tiktoken(tiktoken_file(50256), "r50k");
  EXPECT_EQ(gpt2.split, SplitPattern::gpt2);
  EXPECT_TRUE(gpt2.ignore_merges);
  EXPECT_EQ(gpt2.special_tokens, (std::vector<SpecialToken>{{"<|endoftext|>", 50256}}));

  const BpeTokenizer cl100k(parse_tiktoken(tiktoken_file(100256), "cl100k"));
  EXPECT_EQ(cl100k.model().split, SplitPattern::cl100k);
  EXPECT_EQ(cl100k.vocab_size(), 100277);
  EXPECT_EQ(cl100k.end_of_text(), 100257);
  EXPECT_EQ(cl100k.special_tokens().back(), (SpecialToken{"<|endofprompt|>", 100276}));
  EXPECT_EQ(parse_tokenizer_json(cl100k.to_json(), "again"), cl100k.model());

  EXPECT_ERROR(parse_tiktoken(tiktoken_file(300), "t"), ExitCode::data,
               "t: 300 ranks; how text is split is known only for GPT-2's 50256 and the 100256 of cl100k_base");
}

}  // namespace
}  // namespace gpt::tokenizer
