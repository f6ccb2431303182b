#include "gpt/board/followed_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/scratch_folder.h"

namespace gpt::board {
namespace {

using Lines = std::vector<std::string>;

class Followed : public testing::Test {
 protected:
  void append(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }

  // The lines that are new; "ANEW" where what came before is no more so.
  Lines look(FollowedLines& lines) const {
    Lines seen;
    lines.look([&] { seen.emplace_back("ANEW"); }, [&](std::string_view line) { seen.emplace_back(line); });
    return seen;
  }
  Lines look() { return look(lines_); }

  const ScratchFolder folder_;
  const std::string path_ = folder_ / "metrics.jsonl";
  FollowedLines lines_{path_};
};

TEST_F(Followed, LinesComeAsTheyAreWritten) {
  EXPECT_EQ(look(), Lines());
  append("a\nb\n");
  EXPECT_EQ(look(), (Lines{"a", "b"}));
  EXPECT_EQ(look(), Lines());
  append("\nc\n");
  EXPECT_EQ(look(), (Lines{"", "c"}));
}

TEST_F(Followed, ALineTornInTheMiddleWaitsForItsEnd) {
  append("a\n{\"step\":1,");
  EXPECT_EQ(look(), Lines{"a"});
  append("\"loss\":");
  EXPECT_EQ(look(), Lines());
  append("4}\nb");
  EXPECT_EQ(look(), Lines{R"({"step":1,"loss":4})"});
}

TEST_F(Followed, AnotherFileUnderTheNameIsReadAnew) {
  append("a\nb\nc\n");
  (void)look();
  std::ofstream(path_ + ".new") << "a\nb\n";
  std::filesystem::rename(path_ + ".new", path_);
  EXPECT_EQ(look(), (Lines{"ANEW", "a", "b"}));
  append("d\n");
  EXPECT_EQ(look(), Lines{"d"});
}

TEST_F(Followed, ATruncatedFileIsReadAnew) {
  append("a\nb\nc\n");
  (void)look();
  std::ofstream(path_, std::ios::trunc) << "x\n";
  EXPECT_EQ(look(), (Lines{"ANEW", "x"}));
  std::ofstream(path_, std::ios::trunc) << "longer than before\nit was\n";
  EXPECT_EQ(look(), (Lines{"ANEW", "longer than before", "it was"}));
}

TEST_F(Followed, AFileThatGoesAndComesBackIsReadAnew) {
  append("a\n");
  (void)look();
  std::filesystem::remove(path_);
  EXPECT_EQ(look(), Lines{"ANEW"});
  EXPECT_EQ(look(), Lines());
  append("b\n");
  EXPECT_EQ(look(), Lines{"b"});
}

TEST_F(Followed, OfALargeFileTheEndIsRead) {
  for (int i = 0; i < 1000; ++i) append("line " + std::to_string(i) + "\n");
  FollowedLines end(path_, 30);
  EXPECT_EQ(look(end), (Lines{"line 997", "line 998", "line 999"}));
  append("more\n");
  EXPECT_EQ(look(end), Lines{"more"});
}

TEST_F(Followed, ALineLongerThanABlockIsLeftOut) {
  append("a\n" + std::string(5 << 20, 'x') + "\nb\n");
  EXPECT_EQ(look(), (Lines{"a", "b"}));
}

TEST_F(Followed, ATextIsToldWhereItMayHaveChanged) {
  FollowedText text(path_, 10);
  EXPECT_EQ(text.look(), "");
  EXPECT_EQ(text.look(), std::nullopt);
  append("abc");
  EXPECT_EQ(text.look(), "abc");
  EXPECT_EQ(text.look(), std::nullopt);
  append("defghijkl");
  EXPECT_EQ(text.look(), "");
  std::filesystem::remove(path_);
  EXPECT_EQ(text.look(), "");
  EXPECT_EQ(text.look(), std::nullopt);
}

}  // namespace
}  // namespace gpt::board
