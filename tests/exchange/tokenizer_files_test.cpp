// Our tokenizers in Hugging Face's form. What `tokenizers` makes of these files is tested by tests/e2e/test_export.py.
#include "gpt/exchange/tokenizer_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/special_tokens.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;

constexpr const char* kCharacters =
    R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,)"
    R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"[\\s\\S]"},"behavior":"Isolated","invert":false},)"
    R"("post_processor":null,"decoder":{"type":"Fuse"},)"
    R"("model":{"type":"WordLevel","vocab":{"\n":0," ":1,"a":2,"é":3,"語":4},"unk_token":"<unk>"}})";

TEST(TokenizerFiles, CharactersAreWordsOfTheirOwn) {
  const auto tokenizer = tokenizer::make_tokenizer("char", "a é語\n");
  EXPECT_EQ(hugging_face_json(*tokenizer), kCharacters);
  EXPECT_EQ(tokenizer_from_hugging_face(kCharacters, "here")->to_json(), tokenizer->to_json());
}

TEST(TokenizerFiles, SpecialTokensAreAddedBehindCharactersAndBytes) {
  for (const char* spec : {"char", "byte"}) {
    const auto tokenizer =
        tokenizer::with_special_tokens(*tokenizer::make_tokenizer(spec, "a é語\n"), {"<|im_start|>", "<|im_end|>"});
    const json file = json::parse(hugging_face_json(*tokenizer));
    const int64_t first = tokenizer->vocab_size() - 2;
    EXPECT_EQ(file["added_tokens"].size(), 2);
    EXPECT_EQ(file["added_tokens"][1]["content"], "<|im_end|>");
    EXPECT_EQ(file["added_tokens"][1]["id"], first + 1);
    EXPECT_EQ(file["added_tokens"][1]["special"], true);
    const auto read = tokenizer_from_hugging_face(file.dump(), "here");
    EXPECT_EQ(read->encode_with_specials("a é<|im_end|>"), tokenizer->encode_with_specials("a é<|im_end|>"));
    EXPECT_EQ(read->encode("é"), tokenizer->encode("é"));
  }
}

// Hugging Face's library counts added tokens on from the vocabulary, whatever their ids are, unless they are in it, too.
TEST(TokenizerFiles, IdsThatLeaveAGapAreWrittenIntoTheVocabulary) {
  const std::string plain =
      read_file(test::source_folder() + "/tests/tokenizer/hugging_face/qwen2.json", ExitCode::data);
  EXPECT_EQ(hugging_face_json(*tokenizer::tokenizer_from_json(plain, "plain")), plain);
  json file = json::parse(plain);
  json& last = file["added_tokens"].back();
  const std::string name = last["content"];
  const int32_t id = last["id"].get<int32_t>() + 7;
  last["id"] = id;
  const auto tokenizer = tokenizer::tokenizer_from_json(file.dump(), "file");
  EXPECT_EQ(tokenizer->to_json(), file.dump());  // whose hash bins and checkpoints have
  const json exported = json::parse(hugging_face_json(*tokenizer));
  EXPECT_EQ(exported["model"]["vocab"].value(name, 0), id);
  EXPECT_EQ(exported["added_tokens"], file["added_tokens"]);
  const auto again = tokenizer::tokenizer_from_json(exported.dump(), "again");
  EXPECT_EQ(again->encode_with_specials(name), std::vector<int32_t>{id});
  EXPECT_EQ(again->encode_with_specials("a" + name + " b"), tokenizer->encode_with_specials("a" + name + " b"));
}

TEST(TokenizerFiles, OtherWordsAreRefused) {
  const auto refused = [](const std::string& path, const json& value) {
    json file = json::parse(kCharacters);
    file[json::json_pointer(path)] = value;
    EXPECT_ERROR(tokenizer_from_hugging_face(file.dump(), "here"), ExitCode::data, "here: ");
  };
  refused("/model/vocab", {{"ab", 0}, {"c", 1}});
  refused("/model/vocab", {{"a", 0}, {"b", 2}});
  refused("/model/vocab", {{"a", 0}, {"b", 0}});
  refused("/model/vocab", {{"a", "0"}});
  refused("/model/vocab", json::object());
  refused("/model/unk_token", "a");
  refused("/normalizer", {{"type", "Lowercase"}});
  refused("/pre_tokenizer", {{"type", "Whitespace"}});
  refused("/decoder", nullptr);
  refused("/added_tokens", {7});
  refused("/added_tokens", {{{"content", "x"}}});
}

TEST(TokenizerFiles, BytesAreBpeWithoutMerges) {
  const json file = json::parse(hugging_face_json(*tokenizer::make_tokenizer("byte", "")));
  EXPECT_EQ(file["model"]["type"], "BPE");
  EXPECT_EQ(file["model"]["merges"], json::array());
  EXPECT_EQ(file["model"]["vocab"].size(), 256);
  EXPECT_EQ(file["model"]["vocab"]["A"], 65);
  EXPECT_EQ(file["model"]["vocab"]["\u0120"], 32);
  const auto read = tokenizer_from_hugging_face(file.dump(), "here");
  EXPECT_EQ(read->encode("a é"), tokenizer::make_tokenizer("byte", "")->encode("a é"));
}

TEST(TokenizerFiles, BytePairsAreAsTheyAre) {
  const auto tokenizer = tokenizer::make_tokenizer("bpe:300", "the cat and the dog and the cat and the dog");
  EXPECT_EQ(hugging_face_json(*tokenizer), tokenizer->to_json());
  EXPECT_EQ(tokenizer_from_hugging_face(tokenizer->to_json(), "here")->to_json(), tokenizer->to_json());
}

}  // namespace
}  // namespace gpt::exchange
