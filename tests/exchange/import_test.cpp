// What counts as a model of Hugging Face's, and what is known of it without its weights.
#include "gpt/exchange/import.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/exchange/tokenizer_files.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"
#include "support/source_folder.h"

namespace gpt::exchange {
namespace {

constexpr const char* kConfig = R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 16, "n_layer": 1, "n_head": 4})";

class ImportTest : public testing::Test {
 protected:
  const ScratchFolder root_;
  const std::string config_ = root_.file("model/config.json", kConfig);
  const std::string folder_ = root_ / "model";
};

TEST_F(ImportTest, AFolderIsKnownByItsConfiguration) {
  EXPECT_TRUE(is_hugging_face(folder_));
  EXPECT_TRUE(is_hugging_face(root_ / "gone/a.safetensors"));
  EXPECT_FALSE(is_hugging_face(root_ / "gone"));
  EXPECT_FALSE(is_hugging_face(root_.path()));
  root_.file("model/ckpt.pt", "");
  EXPECT_FALSE(is_hugging_face(folder_)) << "it holds a run";
}

TEST_F(ImportTest, TheTokenizerComesWithTheModel) {
  EXPECT_EQ(read_foreign_model(folder_).tokenizer, "");
  const auto tokenizer = tokenizer::make_tokenizer("char", "abc");
  root_.file("model/tokenizer.json", hugging_face_json(*tokenizer));
  for (const std::string& path : {folder_, folder_ + "/model.safetensors"}) {
    const ForeignModel model = read_foreign_model(path);
    EXPECT_EQ(model.tokenizer, tokenizer->to_json());
    EXPECT_EQ(model.family, &kGpt2Family);
    EXPECT_EQ(model.model.n_embd, 16);
  }
}

TEST_F(ImportTest, FoldersOfEarlyVersionsHaveGpt2sPairOfFiles) {
  root_.file("model/vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  root_.file("model/merges.txt", "#version: 0.2\na b\n");
  const ForeignModel model = read_foreign_model(folder_);
  const auto tokenizer = tokenizer::tokenizer_from_json(model.tokenizer, "here");
  EXPECT_EQ(tokenizer->encode("abb"), (std::vector<int32_t>{2, 1}));
  EXPECT_EQ(tokenizer->end_of_text(), 3);
  root_.file("model/tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_EQ(read_foreign_model(folder_).tokenizer, "") << "which splits text otherwise";
}

TEST_F(ImportTest, FoldersOfEarlyVersionsHaveSentencepiecesModel) {
  const std::string fixture = test::source_folder() + "/tests/tokenizer/sentencepiece/llama.model";
  root_.file("model/tokenizer.model", read_file(fixture, ExitCode::data));
  root_.file("model/config.json",
             R"({"model_type": "gpt2", "vocab_size": 500, "n_embd": 16, "n_layer": 1, "n_head": 4})");
  root_.file("model/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  ForeignModel model = read_foreign_model(folder_);
  EXPECT_EQ(model.tokenizer, tokenizer::make_tokenizer(fixture, {})->to_json());
  EXPECT_EQ(model.text_format.value().prefix, std::vector<int32_t>{1}) << "as LlamaTokenizer of transformers adds it";
  root_.file("model/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false})");
  EXPECT_EQ(read_foreign_model(folder_).text_format.value().prefix, std::vector<int32_t>{});
}

TEST_F(ImportTest, FilesThatCannotBeUsedAreNamed) {
  const std::string tokenizer =
      root_.file("model/tokenizer.json", hugging_face_json(*tokenizer::make_tokenizer("char", "abcdefghijk")));
  EXPECT_ERROR(read_foreign_model(folder_), ExitCode::checkpoint,
               tokenizer + " has 11 tokens, and the model of config.json 10");
  root_.file("model/tokenizer.json", R"({"version": "1.0", "model": {"type": "Unigram"}})");
  EXPECT_ERROR(read_foreign_model(folder_), ExitCode::checkpoint,
               tokenizer + ": model is \"Unigram\", which this program does not support");
  root_.file("model/config.json", "{}");
  EXPECT_ERROR(read_foreign_model(folder_), ExitCode::checkpoint, config_ + ": model_type is missing");
  EXPECT_ERROR(read_foreign_model(root_ / "gone/a.safetensors"), ExitCode::checkpoint,
               "gone/config.json: No such file");
}

}  // namespace
}  // namespace gpt::exchange
