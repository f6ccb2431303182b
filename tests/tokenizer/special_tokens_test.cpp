#include "gpt/tokenizer/special_tokens.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

const std::vector<std::string> kNew = {"<|im_start|>", "<|im_end|>"};
const std::string kText = "user said: the cat, the dog";

std::unique_ptr<Tokenizer> of_file(const std::string& name) {
  const std::string path = test::source_folder() + "/tests/tokenizer/hugging_face/" + name + ".json";
  return tokenizer_from_json(read_file(path, ExitCode::data), name);
}

std::vector<std::unique_ptr<Tokenizer>> every_kind() {
  std::vector<std::unique_ptr<Tokenizer>> all;
  for (const char* spec : {"char", "byte", "bpe:300"})
    all.push_back(make_tokenizer(spec, kText + kText + " <|imstarend>_"));
  for (const char* file : {"gpt2", "llama2", "llama3", "gemma", "metaspace"}) all.push_back(of_file(file));
  return all;
}

TEST(SpecialTokens, ComeBehindAllIdsAndChangeNoText) {
  for (const auto& before : every_kind()) {
    const auto after = with_special_tokens(*before, kNew);
    const auto first = static_cast<int32_t>(before->vocab_size());
    const std::string what = before->name() + " " + std::to_string(first);
    EXPECT_EQ(after->name(), before->name());
    EXPECT_EQ(after->vocab_size(), first + 2) << what;
    EXPECT_EQ(after->encode(kText), before->encode(kText)) << what;
    EXPECT_EQ(after->encode(kText + " <|im_end|>"), before->encode(kText + " <|im_end|>"))
        << what << ": text stays text";
    EXPECT_EQ(after->encode_with_specials("<|im_start|><|im_end|>"), (Ids{first, first + 1})) << what;
    EXPECT_EQ(after->piece(first, false), "<|im_start|>") << what;
    EXPECT_EQ(after->decode(after->encode(kText)), before->decode(before->encode(kText))) << what;
    EXPECT_EQ(after->text_bytes().back(), 0) << what;
    EXPECT_TRUE(has_special_token(*after, "<|im_end|>"));
    EXPECT_FALSE(has_special_token(*before, "<|im_end|>"));
    EXPECT_EQ(special_tokens_beyond(*before, *after), kNew) << what;
  }
}

TEST(SpecialTokens, AreThereAgainWhenTheTokenizerIsReadBack) {
  for (const auto& before : every_kind()) {
    const auto after = with_special_tokens(*before, kNew);
    const auto again = tokenizer_from_json(after->to_json(), "again");
    EXPECT_EQ(again->to_json(), after->to_json()) << before->name();
    EXPECT_EQ(again->encode_with_specials("the<|im_end|>"), after->encode_with_specials("the<|im_end|>"));
    // Once more, behind those.
    const auto more = with_special_tokens(*after, {"</s>!"});
    EXPECT_EQ(more->encode_with_specials("</s>!"), Ids{static_cast<int32_t>(after->vocab_size())});
    EXPECT_EQ(more->encode_with_specials("<|im_end|>"), after->encode_with_specials("<|im_end|>"));
  }
  EXPECT_EQ(with_special_tokens(*make_tokenizer("char", "ba"), kNew)->to_json(),
            R"({"type":"char","characters":["a","b"],"special_tokens":["<|im_start|>","<|im_end|>"]})");
}

TEST(SpecialTokens, ThatAreOrdinaryOnesAreRefused) {
  EXPECT_ERROR(with_special_tokens(*make_tokenizer("bpe:300", kText + kText), {" the"}), ExitCode::config,
               "the tokenizer has it as an ordinary one (id ");
}

TEST(SpecialTokens, OfAFileAreChecked) {
  const auto refused = [](const std::string& specials, const std::string& why) {
    EXPECT_ERROR(tokenizer_from_json(R"({"type":"byte","special_tokens":)" + specials + "}", "tok.json"),
                 ExitCode::data, "tok.json: not a tokenizer that this program can read: 'special_tokens' " + why);
  };
  refused("7", "must be a list of texts");
  refused("[]", "must be a list of texts");
  refused("[7]", "has 7; texts that differ are needed");
  refused(R"([""])", "has \"\"; texts that differ are needed");
  refused(R"(["a", "a"])", "has \"a\"; texts that differ are needed");
}

TEST(SpecialTokens, ThatARunHasAddedMakeNoOtherTokenizerOfIt) {
  const std::string path = test::source_folder() + "/tests/tokenizer/hugging_face/gpt2.json";
  const auto added = with_special_tokens(*make_tokenizer(path, ""), kNew);
  require_same_tokenizer(path, added->to_json());
  EXPECT_ERROR(require_same_tokenizer(path, with_special_tokens(*of_file("llama3"), kNew)->to_json()),
               ExitCode::checkpoint, "is not the tokenizer of the checkpoint");
}

}  // namespace
}  // namespace gpt::tokenizer
