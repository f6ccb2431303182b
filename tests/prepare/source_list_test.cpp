// What of a folder or a pattern is text to read, and what is not.
#include "src/prepare/source_list.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

class SourceListTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    fs::current_path(folder_.path());
  }
  void TearDown() override { fs::current_path(before_); }

  void files(const Texts& names) const {
    for (const std::string& name : names) folder_.file(name, "x");
  }
  static Texts found(const std::string& input, const std::string& output_dir = "", const std::string& cache_dir = "") {
    Texts names;
    for (const Source& source : find_sources({input}, output_dir, cache_dir).sources) names.push_back(source.path);
    return names;
  }
  static Texts left_out(const std::string& input, const std::string& output_dir = "",
                        const std::string& cache_dir = "") {
    Texts lines;
    for (const LeftOut& entry : find_sources({input}, output_dir, cache_dir).left_out)
      lines.push_back(entry.path + ": " + entry.what);
    return lines;
  }

  const ScratchFolder folder_;
  fs::path before_;
};

TEST_F(SourceListTest, WhatTheProgramWroteAmongTextsIsLeftOut) {
  files({"a.txt", "sub/b.txt", ".git/config", "models/try/effective_config.yaml", "models/notes.txt", "sub/run/ckpt.pt",
         "sub/run/samples/step_100.txt", "old/metrics.jsonl", "tokens/bpe_tokenizer.json", "refused/train.log",
         "refused/c.txt", "out/d.txt", "cache/content_hashes"});
  EXPECT_EQ(found(".", "out", "cache"), (Texts{"./a.txt", "./refused/c.txt", "./sub/b.txt"}));
  EXPECT_EQ(left_out(".", "out", "cache"),
            (Texts{"./.git: ", "./cache: prepared texts", "./models: runs", "./old: a run", "./out: the output",
                   "./refused/train.log: a run", "./sub/run: a run", "./tokens: token ids"}));
  // Seen from elsewhere, or through a pattern, they are the same.
  fs::current_path(fs::path(folder_.path()).parent_path());
  const std::string name = fs::path(folder_.path()).filename();
  EXPECT_EQ(found(name + "/sub"), Texts{name + "/sub/b.txt"});
  EXPECT_EQ(found(name + "/*/*.txt", name + "/out"),
            (Texts{name + "/models/notes.txt", name + "/refused/c.txt", name + "/sub/b.txt"}));
  EXPECT_EQ(found(name + "/**/*.txt", name + "/out"),
            (Texts{name + "/a.txt", name + "/models/notes.txt", name + "/refused/c.txt", name + "/sub/b.txt"}));
}

// --output_dir . among the texts
TEST_F(SourceListTest, AModelAndWhatBelongsToItIsLeftOut) {
  files({"a.txt", "README.md", "config.json", "model.safetensors", "tokenizer.json", "export/config.json",
         "export/README.md", "export/model-00001-of-00002.safetensors", "settings/config.json", "settings/README.md",
         "adapter/adapter_config.json", "adapter/adapter_model.safetensors", "adapter/README.md"});
  EXPECT_EQ(found("."), (Texts{"./a.txt", "./settings/README.md", "./settings/config.json"}));
  EXPECT_EQ(left_out("."), (Texts{"./README.md: a model", "./adapter: a model", "./config.json: a model",
                                  "./export: a model", "./model.safetensors: a model", "./tokenizer.json: a model"}));
}

TEST_F(SourceListTest, InAFolderThatIsARunItselfItsFilesAreLeftOut) {
  files({"a.txt", "samples/step_100.txt", "ckpt_best.pt", "effective_config.yaml", "train.log",
         "set_aside/1/metrics.jsonl", "metrics.jsonl", "metrics.old.jsonl", "report.html", "sub/b.txt"});
  EXPECT_EQ(found("."), (Texts{"./a.txt", "./sub/b.txt"}));
  EXPECT_EQ(found("*.*"), Texts{"a.txt"});
  EXPECT_EQ(found("train.log"), Texts{"train.log"});  // what is named is meant
}

TEST_F(SourceListTest, AFolderOfRunsAloneHasNoText) {
  files({"models/a/ckpt.pt", "models/b/ckpt.pt"});
  EXPECT_ERROR(find_sources({"."}, ""), ExitCode::data,
               "cannot read .: there is no text file in this folder apart from what is left out: ./models (runs)");
  EXPECT_ERROR(find_sources({"cache"}, "", "cache"), ExitCode::data, "No such file");
  fs::create_directory("cache");
  EXPECT_ERROR(find_sources({"cache"}, "", "cache"), ExitCode::config, "choose another data.cache_dir");
}

TEST_F(SourceListTest, TwoStarsAreAnyNumberOfFolders) {
  files({"t/top.txt", "t/a/one.txt", "t/a/b/two.txt", "t/a/b/two.md", "t/.hidden/x.txt", "t/a/run/ckpt.pt",
         "t/a/run/x.txt"});
  fs::create_directory_symlink(folder_ / "t", folder_ / "t/a/circle");
  const Texts all{"t/a/b/two.txt", "t/a/one.txt", "t/top.txt"};
  EXPECT_EQ(found("t/**/*.txt"), all);
  EXPECT_EQ(found("t/**/**/*.txt"), all);
  EXPECT_EQ(found("**/*.txt"), all);
  EXPECT_EQ(found(folder_ / "t/**/two.*"), (Texts{folder_ / "t/a/b/two.md", folder_ / "t/a/b/two.txt"}));
  EXPECT_EQ(found("t/**/b/*.txt"), Texts{"t/a/b/two.txt"});
  EXPECT_EQ(found("t/**"), (Texts{"t/a/b/two.md", "t/a/b/two.txt", "t/a/one.txt", "t/top.txt"}));
  EXPECT_EQ(find_sources({"t/**/*.txt"}, "").passed_over.at(0).why, "t/a/circle: it is a link to a folder");
  EXPECT_EQ(found("t/*/*.txt"), Texts{"t/a/one.txt"});
  EXPECT_EQ(found("t/[a-c]/o?e.txt"), Texts{"t/a/one.txt"});
  EXPECT_EQ(found("./t/*.txt"), Texts{"./t/top.txt"});
  EXPECT_ERROR(find_sources({"t/**/*.json"}, ""), ExitCode::data, "no file matches");
}

}  // namespace
}  // namespace gpt::prepare
