// What is said of a path that leads to no model.
#include "gpt/exchange/missing_model.h"

#include <gtest/gtest.h>

#include <string>

#include "core/scratch_folder.h"

namespace gpt::exchange {
namespace {

void expect_said(const std::string& path, const std::string& part) {
  const std::string said = why_missing(path);
  EXPECT_NE(said.find(part), std::string::npos) << path << ": " << said;
}

TEST(MissingModel, NamesOfTheHubAreDownloadedByTheUser) {
  expect_said("gpt2-xl",
              "gpt2-xl: there is no such folder here, and models are not downloaded: `hf download "
              "openai-community/gpt2-xl --local-dir downloads/gpt2-xl` does that");
  expect_said("HuggingFaceTB/SmolLM2-135M",
              "`hf download HuggingFaceTB/SmolLM2-135M --local-dir downloads/SmolLM2-135M`");
}

TEST(MissingModel, WordsOfOtherProgramsAreExplained) {
  expect_said("resume", "leave init_from out, and name the folder with --output_dir");
  expect_said("scratch", "leave init_from out, and the weights are drawn at random");
}

TEST(MissingModel, OfAPathThereIsNothingToSay) {
  const ScratchFolder root;
  for (const std::string& path : {std::string("mine"), std::string("models/mine"), std::string("./a/b"),
                                  std::string("a/b/c"), std::string("a/ckpt.pt"), std::string("../gpt2"),
                                  std::string("~/gpt2"), std::string("a b/c"), root.path(), root / "none"})
    EXPECT_EQ(why_missing(path), "") << path;
}

}  // namespace
}  // namespace gpt::exchange
