// Where a run lives: two configurations, two folders; and runs in the folders of earlier versions.
#include "gpt/config/output_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "config/faults.h"
#include "core/scratch_folder.h"

namespace gpt::config {
namespace {

namespace fs = std::filesystem;

std::string folder_of_config(const std::string& path) { return output_folder({}, path); }

std::string folder_of_text(const std::string& path, const std::string& config_path = "") {
  DataConfig data;
  data.text = path;
  return output_folder(data, config_path);
}

std::string folder_of_bin(const std::string& path) {
  DataConfig data;
  data.bin = path;
  return output_folder(data, "");
}

TEST(OutputFolder, IsNamedAfterTheConfigurationElseTheData) {
  EXPECT_EQ(folder_of_config("configs/shakespeare_char.yaml"), "models/shakespeare_char");
  EXPECT_EQ(folder_of_text("texts/", "a.yml"), "models/a");
  EXPECT_EQ(folder_of_text("/home/me/My text.txt"), "models/My_text");
  EXPECT_EQ(folder_of_text("texts/"), "models/texts");
  EXPECT_EQ(folder_of_text("größe.jsonl.zst"), "models/größe");
  EXPECT_EQ(folder_of_bin("data/owt_val.bin"), "models/owt_val");
  DataConfig installed;
  installed.dataset = DatasetName::shakespeare;
  EXPECT_EQ(output_folder(installed, ""), "models/shakespeare");
  EXPECT_EQ(output_folder({}, ""), "models/run");
}

TEST(OutputFolder, OnlyEndingsThatSayWhatAFileIsAreLeftOut) {
  EXPECT_EQ(folder_of_config("exp_lr0.001.yaml"), "models/exp_lr0.001");
  EXPECT_EQ(folder_of_config("exp_lr0.0003.yaml"), "models/exp_lr0.0003");
  EXPECT_EQ(folder_of_config("lr=1e-3,wd=0.1.yaml"), "models/lr=1e-3,wd=0.1");
  EXPECT_EQ(folder_of_config("a.txt.yaml"), "models/a.txt");
  EXPECT_EQ(folder_of_config("noending"), "models/noending");
  EXPECT_EQ(folder_of_text("wiki.v2.txt.gz"), "models/wiki.v2");
  EXPECT_EQ(folder_of_text("wiki.v3/"), "models/wiki.v3");
  EXPECT_EQ(folder_of_text(".txt"), "models/_txt");
}

TEST(OutputFolder, WhereAFileIsCalledAsManyAreItsFolderNamesIt) {
  EXPECT_EQ(folder_of_bin("data/books/tokens_bpe.bin"), "models/books");
  EXPECT_EQ(folder_of_bin("/data/owt/train.bin"), "models/owt");
  EXPECT_EQ(folder_of_bin("tokens_bpe.bin"), "models/tokens_bpe");
  EXPECT_EQ(folder_of_bin("../tokens_bpe.bin"), "models/tokens_bpe");
  EXPECT_EQ(folder_of_bin("books/data/tokens_bpe.bin"), "models/books");
  EXPECT_EQ(folder_of_config("exp1/config.yaml"), "models/exp1");
  EXPECT_EQ(folder_of_config("./config.yaml"), "models/config");
  EXPECT_EQ(folder_of_text("wiki/*.jsonl.zst"), "models/wiki");
  EXPECT_EQ(folder_of_text("texts/**/*.txt"), "models/texts");
  EXPECT_EQ(folder_of_text("*.txt"), "models/run");
  for (const char* nowhere : {".", "..", "/", "../..", "./"})
    EXPECT_EQ(folder_of_text(nowhere), "models/run") << nowhere;
}

// Runs below a folder of the test's own, which is the working folder meanwhile.
class FormerFolders : public testing::Test {
 protected:
  FormerFolders() : before_(fs::current_path()) { fs::current_path(root_.path()); }
  ~FormerFolders() override { fs::current_path(before_); }

  Config parse(const std::string& config_path) const {
    const char* arguments[] = {"gpt-train", "--config", config_path.c_str()};
    return parse_command_line(3, arguments, "gpt-train", "").config;
  }
  // What a run of this configuration leaves.
  void leave(const std::string& folder, Config config) const {
    config.output_dir = folder;
    config.model.vocab_size = 65;
    root_.file(folder + "/" + kEffectiveConfig, dump(config));
  }

  const fs::path before_;
  ScratchFolder root_;
};

TEST_F(FormerFolders, HoldTheRunOfExactlyThisConfiguration) {
  root_.file("exp_lr0.001.yaml", "training: {learning_rate: 0.001}\n");
  root_.file("exp_lr0.0003.yaml", "training: {learning_rate: 0.0003}\n");
  leave("models/exp_lr0", parse("exp_lr0.001.yaml"));
  EXPECT_EQ(parse("exp_lr0.001.yaml").output_dir, "models/exp_lr0");
  EXPECT_EQ(parse("exp_lr0.0003.yaml").output_dir, "models/exp_lr0.0003");
  leave("models/exp_lr0.001", parse("exp_lr0.001.yaml"));
  EXPECT_EQ(parse("exp_lr0.001.yaml").output_dir, "models/exp_lr0.001") << "where both are, today's";
}

TEST_F(FormerFolders, OfPreparedTokensWereCalledAfterTheirFile) {
  root_.file("a.yaml", "output_dir: elsewhere\n");
  const auto parse_bin = [](const char* bin) {
    const char* arguments[] = {"gpt-train", "--bin", bin};
    return parse_command_line(3, arguments, "gpt-train", "").config;
  };
  leave("models/tokens_bpe", parse_bin("books/tokens_bpe.bin"));
  EXPECT_EQ(parse_bin("books/tokens_bpe.bin").output_dir, "models/tokens_bpe");
  EXPECT_EQ(parse_bin("poems/tokens_bpe.bin").output_dir, "models/poems");
  EXPECT_EQ(parse("a.yaml").output_dir, "elsewhere");
}

TEST_F(FormerFolders, ThatCannotBeReadAreNotMeant) {
  root_.file("exp.1.yaml", "seed: 2\n");
  root_.file(fmt::format("models/exp/{}", kEffectiveConfig), "no: such: configuration");
  EXPECT_EQ(parse("exp.1.yaml").output_dir, "models/exp.1");
}

}  // namespace
}  // namespace gpt::config
