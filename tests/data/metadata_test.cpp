#include "gpt/data/metadata.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::data {
namespace {

Metadata parsed(const std::string& json) { return parse_metadata(json, "m.json"); }

Metadata sample() {
  Metadata metadata;
  metadata.vocab_size = 100277;
  metadata.width_bytes = 4;
  metadata.tokenizer = "bpe_tokenizer.json";
  metadata.tokenizer_hash = "00112233445566778899aabbccddeeff";
  metadata.bin_hash = "ffeeddccbbaa99887766554433221100";
  metadata.train = {.tokens = 9'000'000'000, .documents = 12, .bytes = 40'000'000'000};
  metadata.validation = {.tokens = 1'000, .documents = 1, .bytes = 4'000};
  metadata.split = "documents";
  metadata.invalid_utf8_bytes = 7;
  metadata.sources = {{"a.txt", 5}, {"b \"quoted\"\n.txt", 6}};
  metadata.skipped = {"c.png"};
  return metadata;
}

TEST(MetadataTest, ReadsWhatItWrote) {
  EXPECT_EQ(parsed(to_json(sample())), sample());
  Metadata small;
  small.vocab_size = 1;
  EXPECT_EQ(parsed(to_json(small)), small);
  Metadata chats = sample();
  chats.train.learned = 5'000'000'000;
  chats.conversations = {.shape = "messages",
                         .learn = "answers",
                         .chat_template = "{{ messages }}",
                         .marks_hash = "00112233445566778899aabbccddeeff",
                         .turns = 40,
                         .answers = 20,
                         .unanswered = 2,
                         .last_answer_only = 3};
  EXPECT_EQ(parsed(to_json(chats)), chats);
  EXPECT_ERROR(parsed(R"({"vocab_size": 1, "conversations": {"shape": "messages"}})"), ExitCode::data,
               "'conversations' lacks 'shape' or 'marks_hash'");
}

TEST(MetadataTest, IsMadeForPeople) {
  const std::string json = to_json(sample());
  EXPECT_TRUE(json.starts_with("{\n  \"vocab_size\": 100277,\n  \"dtype\": \"uint32\",\n")) << json;
  EXPECT_NE(json.find("\"bytes_per_token\": 4.444,"), std::string::npos) << json;
  Metadata latin1 = sample();
  latin1.sources[0].path = "caf\xE9.txt";
  EXPECT_NE(to_json(latin1).find("caf\xEF\xBF\xBD.txt"), std::string::npos);
}

TEST(MetadataTest, NeedsOnlyTheVocabulary) {
  const Metadata metadata = parsed(R"({"vocab_size": 65536, "made_by": "another program"})");
  EXPECT_EQ(metadata.vocab_size, 65536);
  EXPECT_EQ(metadata.width_bytes, 0);  // the bin shows it
  EXPECT_EQ(metadata.train, SplitCounts{});
  EXPECT_EQ(metadata.tokenizer, "");
  EXPECT_EQ(parsed(R"({"vocab_size": 2147483647, "dtype": "uint32"})").width_bytes, 4);
  EXPECT_EQ(parsed(R"({"vocab_size": 5, "train": {"tokens": 1152921504606846976}})").train.tokens, int64_t{1} << 60);
}

TEST(MetadataTest, RefusesWhatContradictsItself) {
  EXPECT_ERROR(parsed(R"({"vocab_size": 65537, "dtype": "uint16"})"), ExitCode::data, "m.json: 'dtype' is \"uint16\"");
  EXPECT_ERROR(parsed(R"({"vocab_size": 5, "validation": {"tokens": 3}})"), ExitCode::data, "'train.tokens' is 0");
}

TEST(MetadataTest, NamesTheKeyTheValueAndTheNeed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "m.json: invalid JSON at byte 1"},
      {R"({"vocab_size": 5)", "invalid JSON at byte"},
      {"{\"vocab_size\": 5, \"tokenizer\": \"\xFF\"}", "invalid JSON at byte"},
      {"[5]", "not a JSON object"},
      {"{}", "'vocab_size' is missing"},
      {R"({"vocab_size": 0})", "'vocab_size' is 0; a whole number from 1 to 2147483647 is needed"},
      {R"({"vocab_size": -3})", "'vocab_size' is -3"},
      {R"({"vocab_size": 2147483648})", "'vocab_size' is 2147483648"},
      {R"({"vocab_size": 18446744073709551615})", "'vocab_size' is 18446744073709551615"},
      {R"({"vocab_size": 5.0})", "'vocab_size' is 5.0"},
      {R"({"vocab_size": 1e999})", "invalid JSON"},
      {R"({"vocab_size": true})", "'vocab_size' is true"},
      {R"({"vocab_size": [5]})", "'vocab_size' is an array"},
      {R"({"vocab_size": 5, "dtype": "int16"})", "'dtype' is \"int16\"; 'uint16' or 'uint32' is needed"},
      {R"({"vocab_size": 5, "dtype": 16})", "'dtype' is 16"},
      {R"({"vocab_size": 5, "tokenizer": null})", "'tokenizer' is null; a string is needed"},
      {R"({"vocab_size": 5, "bin_hash": "00112233445566778899AABBCCDDEEFF"})", "32 hexadecimal digits"},
      {R"({"vocab_size": 5, "tokenizer_hash": "0011"})", "'tokenizer_hash' is \"0011\""},
      {R"({"vocab_size": 5, "train": 7})", "'train' is 7; an object is needed"},
      {R"({"vocab_size": 5, "train": {"tokens": -1}})", "'train.tokens' is -1"},
      {R"({"vocab_size": 5, "train": {"tokens": 9223372036854775807}})", "'train.tokens' is 9223372036854775807"},
      {R"({"vocab_size": 5, "train": {"tokens": 1152921504606846977}})",
       "a whole number from 0 to 1152921504606846976 is needed"},
      {R"({"vocab_size": 5, "train": {"bytes": "7"}})", "'train.bytes' is \"7\""},
      {R"({"vocab_size": 5, "split": "lines"})", "'split' is \"lines\""},
      {R"({"vocab_size": 5, "invalid_utf8_bytes": -1})", "'invalid_utf8_bytes' is -1"},
      {R"({"vocab_size": 5, "sources": {}})", "'sources' is an object; a list is needed"},
      {R"({"vocab_size": 5, "sources": ["a.txt"]})", "'sources' is \"a.txt\"; an object is needed"},
      {R"({"vocab_size": 5, "sources": [{"path": 3}]})", "'sources.path' is 3"},
      {R"({"vocab_size": 5, "skipped": [3]})", "'skipped' holds 3"},
  };
  for (const auto& [json, message] : cases) EXPECT_ERROR(parsed(json), ExitCode::data, message);
  const std::string longer = R"({"vocab_size": 5, "split": ")" + std::string(1000, 'x') + "\"}";
  EXPECT_ERROR(parsed(longer), ExitCode::data, "xxx...; 'documents' or 'tokens' is needed");
}

TEST(MetadataTest, AnyFlippedBitIsFound) {
  const std::string good = to_json(sample());
  int harmless = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      try {
        EXPECT_EQ(parsed(damaged), sample()) << damaged;  // in its own hash's name, or between values
        ++harmless;
      } catch (const Error& error) { EXPECT_EQ(error.code(), ExitCode::data); }
    }
  }
  EXPECT_LT(harmless, 0.1 * 8 * static_cast<double>(good.size()));
  // Another spelling is not another content, and whoever changes something can say so.
  EXPECT_EQ(parsed(nlohmann::json::parse(good).dump()), sample());
  auto changed = nlohmann::json::parse(good);
  changed["vocab_size"] = 100278;
  EXPECT_ERROR(parsed(changed.dump()), ExitCode::data, "m.json: it is not as it was written");
  changed.erase("metadata_hash");
  EXPECT_EQ(parsed(changed.dump()).vocab_size, 100278);
}

TEST(MetadataTest, SurvivesDeepNesting) {
  const std::string deep = R"({"vocab_size": 5, "train": )" + std::string(1'000'000, '[');
  EXPECT_ERROR(parsed(deep), ExitCode::data, "invalid JSON");
}

TEST(MetadataTest, NamesTheFile) {
  const ScratchFolder folder;
  const std::string path = folder / "m.json";
  EXPECT_ERROR(read_metadata(path), ExitCode::data, path);
  std::ofstream(path) << "{}";
  EXPECT_ERROR(read_metadata(path), ExitCode::data, path + ": 'vocab_size' is missing");
}

}  // namespace
}  // namespace gpt::data
