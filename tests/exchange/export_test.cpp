// A folder that an export leaves: one model or none.
#include "gpt/exchange/export.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/missing_model.h"
#include "gpt/exchange/weights.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/fixture.h"

namespace gpt::exchange {
namespace {

namespace fs = std::filesystem;

class FolderExport : public testing::Test {
 protected:
  FolderExport() {
    const test::Fixture fixture = test::read_fixture("llama_form");
    checkpoint_.config.model = fixture.model_config();
    checkpoint_.model = fixture.group("initial.");
    std::string characters = "\n ";
    for (char c = '!'; c <= '}'; ++c) characters += c;
    checkpoint_.tokenizer = tokenizer::make_tokenizer("char", characters + "é語")->to_json();
    checkpoint_.text_format =
        tokenizer::TextFormat{.begin = 3, .pad = 1, .ends = {1, 2}, .chat_template = "{{ messages }}"};
  }

  // `shard` GB in a file; the export of nothing else than this checkpoint.
  void write(double shard) const {
    const test::CapturedLog log;
    write_hugging_face({.checkpoint = "a/ckpt.pt", .output = folder_, .max_shard_size = shard}, checkpoint_);
  }
  std::vector<std::string> names() const { return names_in(folder_); }

  const ScratchFolder root_;
  const std::string folder_ = root_ / "exported";
  checkpoint::Checkpoint checkpoint_;
};

TEST_F(FolderExport, TheFormatOfTextsGoesOutAndComesBack) {
  write(50);
  EXPECT_EQ(names(),
            (std::vector<std::string>{"README.md", "chat_template.jinja", "config.json", "generation_config.json",
                                      "model.safetensors", "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(read_foreign_model(folder_).text_format, checkpoint_.text_format);
  checkpoint_.text_format.reset();
  write(50);
  EXPECT_EQ(read_foreign_model(folder_).text_format, std::nullopt) << "the template of the older export is gone";
}

// A folder of that name in the way of one of the files ends the export there, as an error of a disk or a power failure would.
TEST_F(FolderExport, WhatIsNotFinishedIsNoModel) {
  constexpr double kOnlyFile = 50, kSeveral = 1e-5;
  for (const double shard : {kOnlyFile, kSeveral}) {
    write(shard);
    const std::vector<std::string> all = names();
    EXPECT_EQ(all.size() > 8, shard == kSeveral);
    for (const std::string& name : all) {
      if (name == "README.md" || name == "config.json") continue;  // the first and the last
      write(shard);
      fs::remove(folder_ + "/" + name);
      root_.file("exported/" + name + "/in the way", "");
      EXPECT_THROW(write(shard), Error) << name;
      EXPECT_FALSE(is_hugging_face(folder_)) << name;
      EXPECT_TRUE(is_unfinished_export(folder_)) << name;
      EXPECT_ERROR((void)read_foreign_model(folder_ + "/any.safetensors"), ExitCode::checkpoint,
                   folder_ + ": an export into this folder was not finished, so it is no model");
      fs::remove_all(folder_ + "/" + name);
      write(shard);
      EXPECT_TRUE(is_hugging_face(folder_)) << name;
      EXPECT_EQ(names(), all);
    }
    fs::remove_all(folder_);
  }
}

}  // namespace
}  // namespace gpt::exchange
