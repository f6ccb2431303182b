#include "gpt/serve/model_name.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace gpt::serve {
namespace {

// A folder by its whole name, a file without what says its form.
TEST(ModelName, IsThatOfTheFolderOrTheFile) {
  const std::filesystem::path folder = testing::TempDir() + "model_name_" + std::to_string(getpid());
  for (const char* one : {"gpt2", "Tiny-Llama-3.2-1B", "run-v0.5", "odd.pt"})
    std::filesystem::create_directories(folder / one);
  const auto name = [&](const char* path) { return model_name(folder / path); };
  EXPECT_EQ(name("gpt2"), "gpt2");
  EXPECT_EQ(name("gpt2/"), "gpt2");
  EXPECT_EQ(name("gpt2/."), "gpt2");
  EXPECT_EQ(name("Tiny-Llama-3.2-1B"), "Tiny-Llama-3.2-1B");
  EXPECT_EQ(name("odd.pt"), "odd.pt");
  EXPECT_EQ(name("run-v0.5/ckpt.pt"), "run-v0.5");
  EXPECT_EQ(name("run-v0.5/ckpt_best.pt"), "ckpt_best");
  EXPECT_EQ(name("small-v1.5.pt"), "small-v1.5");
  EXPECT_EQ(name("small-v1.5.safetensors"), "small-v1.5");
  EXPECT_EQ(name("small-v1.5"), "small-v1.5");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gpt::serve
