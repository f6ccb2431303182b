#include "gpt/core/version.h"

#include <gtest/gtest.h>

#include <regex>

namespace gpt {
namespace {

TEST(Version, NamesCommitLibTorchAndCuda) {
  EXPECT_TRUE(std::regex_match(commit_id(), std::regex("[0-9a-f]{7,}(-dirty)?|unknown"))) << commit_id();
  const std::regex form("gpt-train [0-9]+\\.[0-9]+\\.[0-9]+ \\(commit " + commit_id() +
                        "\\)\nLibTorch [0-9]+\\.[0-9]+\\.[0-9]+\n(CUDA not built|CUDA [0-9]+\\.[0-9]+)");
  EXPECT_TRUE(std::regex_match(version_text(), form)) << version_text();
  EXPECT_TRUE(version_text("gpt-bench").starts_with("gpt-bench ")) << version_text("gpt-bench");
}

}  // namespace
}  // namespace gpt
