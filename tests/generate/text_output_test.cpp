#include "gpt/generate/text_output.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "support/expect_error.h"

namespace gpt::generate {
namespace {

namespace fs = std::filesystem;

class TextFile : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::string content(const std::string& name) const { return read_file(path(name), ExitCode::data); }
  auto files() const { return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()); }

  ScratchFolder folder_;
};

TEST_F(TextFile, AppearsWhenItIsWhole) {
  TextOutput output(path("a"), /*raw=*/false);
  EXPECT_TRUE(output.write("one\n"));
  output.end_line();
  EXPECT_TRUE(output.write("two\x1b"));
  output.end_line();
  EXPECT_EQ(files(), 0);
  output.finish();
  EXPECT_EQ(content("a"), "one\ntwo\x1b\n");  // a file is no terminal
  EXPECT_EQ(files(), 1);
}

TEST_F(TextFile, ReplacesAnEarlierOne) {
  folder_.file("a", "a longer text than the one that comes");
  TextOutput output(path("a"), false);
  output.write("new");
  EXPECT_NE(content("a"), "new");
  output.finish();
  EXPECT_EQ(content("a"), "new");
}

TEST_F(TextFile, LeavesTheOldOneWithoutFinish) {
  folder_.file("a", "old");
  TextOutput(path("a"), false).write("new");
  EXPECT_EQ(content("a"), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(TextFile, KeepsALinkAndReplacesWhatItPointsTo) {
  folder_.file("a", "old");
  fs::create_symlink("a", path("link"));
  TextOutput output(path("link"), false);
  output.write("new");
  output.finish();
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(content("a"), "new");
}

TEST_F(TextFile, RefusesAtOnceWhatItCannotWrite) {
  EXPECT_ERROR(TextOutput(path("none/a"), false), ExitCode::disk, path("none/a"));
  EXPECT_ERROR(TextOutput(folder_.path(), false), ExitCode::disk, "it is a folder");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(TextOutput(path("pipe"), false), ExitCode::disk, path("pipe") + ": it is not a regular file");
}

}  // namespace
}  // namespace gpt::generate
