#include "gpt/data/replacement.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <string>

#include "core/child_process.h"
#include "core/failing_calls.h"
#include "core/killed_child.h"
#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/lock.h"
#include "gpt/data/metadata.h"
#include "support/expect_error.h"

namespace gpt::data {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;

class ReplacementTest : public testing::Test {
 protected:
  void replace(const Files& files) const {
    const FolderLock lock(folder_.path(), ExitCode::config, "--output");
    Replacement replacement(folder_.path());
    for (const auto& [name, content] : files) {
      AtomicFile file(replacement.path() + "/" + name);
      file.write(content);
      file.commit();
    }
    replacement.commit();
  }
  // What is there, by name.
  Files found() const {
    Files files;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      files[entry.path().filename()] = entry.is_directory() ? "folder" : read_file(entry.path(), ExitCode::data);
    }
    return files;
  }
  // After a start: what a killed process left is in its place, or gone.
  Files settled() const {
    finish_replacement(folder_.path());
    Files files = found();
    for (const char* name : {".gpt-prepare-unfinished", ".lock"}) files.erase(name);
    return files;
  }

  const Files old_ = {{kBinFile, "old bin"}, {kTokenizerFile, "old tokenizer"}, {kMetadataFile, "old metadata"}};
  const Files new_ = {{kBinFile, "new bin"}, {kTokenizerFile, "new tokenizer"}, {kMetadataFile, "new metadata"}};
  ScratchFolder folder_;
};

TEST_F(ReplacementTest, ReplacesAll) {
  replace(old_);
  EXPECT_EQ(found(), old_);
  folder_.file("notes.txt", "mine");
  replace(new_);
  Files expected = new_;
  expected["notes.txt"] = "mine";
  EXPECT_EQ(found(), expected);
  // Files that come without metadata end what the old ones said.
  replace({{"train.bin", "ids"}, {kTokenizerFile, "tokenizer"}});
  expected.erase(kMetadataFile);
  expected["train.bin"] = "ids";
  expected[kTokenizerFile] = "tokenizer";
  EXPECT_EQ(found(), expected);
}

TEST_F(ReplacementTest, AKillAtEverySystemCallLeavesTheOldFilesOrTheNewOnes) {
  int left_old = 0, left_new = 0;
  for (int stop = 1;; stop += 2) {  // nothing happens between a call's end and the beginning of the next one
    for (const auto& [name, content] : old_) folder_.file(name, content);
    const Ending ending = kill_at_stop(stop, [this] { replace(new_); });
    if (ending == Ending::not_permitted) GTEST_SKIP() << "this machine does not allow ptrace";
    if (ending == Ending::ended) break;
    const Files files = settled();
    ASSERT_TRUE(files == old_ || files == new_) << "killed at stop " << stop;
    ++(files == old_ ? left_old : left_new);
    ASSERT_NO_THROW(replace(new_));  // what was left is not in the way
    ASSERT_EQ(found(), new_) << "killed at stop " << stop;
  }
  EXPECT_GT(left_old, 20);
  EXPECT_GT(left_new, 10);
}

TEST_F(ReplacementTest, AKillWhileItIsFinishedLeavesTheNewFiles) {
  int kills = 0;
  for (int stop = 1;; stop += 2) {
    fs::remove_all(folder_ / ".gpt-prepare-finished");
    for (const auto& [name, content] : old_) folder_.file(name, content);
    for (const auto& [name, content] : new_) folder_.file(".gpt-prepare-finished/" + name, content);
    const Ending ending = kill_at_stop(stop, [this] { finish_replacement(folder_.path()); });
    if (ending == Ending::not_permitted) GTEST_SKIP() << "this machine does not allow ptrace";
    if (ending == Ending::ended) break;
    ++kills;
    ASSERT_EQ(settled(), new_) << "killed at stop " << stop;
  }
  EXPECT_GT(kills, 10);
}

TEST_F(ReplacementTest, ACallThatFailsLeavesTheOldFiles) {
  replace(old_);
  for (const FailingCall call : {FailingCall{SYS_fsync, EIO}, {SYS_rename, EIO}, {SYS_write, ENOSPC}}) {
    const ChildResult child = run_with_failing_calls({call}, [&] { replace(new_); });
    if (child.status == kNotPermitted) GTEST_SKIP() << "this machine does not let system calls fail";
    EXPECT_EQ(child.status, static_cast<int>(ExitCode::disk)) << child.errors;
    EXPECT_EQ(found(), old_);
  }
}

TEST_F(ReplacementTest, AFolderInTheWayIsFoundBeforeAnythingIsReplaced) {
  replace(old_);
  fs::remove(folder_ / kTokenizerFile);
  folder_.file(std::string(kTokenizerFile) + "/inside", "");
  Files expected = old_;
  expected[kTokenizerFile] = "folder";
  EXPECT_ERROR(replace(new_), ExitCode::disk, "bpe_tokenizer.json: a folder has this name");
  EXPECT_EQ(found(), expected);
}

TEST_F(ReplacementTest, NothingIsRemovedWhereTheNewFilesCannotBeListed) {
  replace(old_);
  for (const auto& [name, content] : new_) folder_.file(".gpt-prepare-finished/" + name, content);
  const ChildResult child =
      run_with_failing_calls({{SYS_getdents64, EIO}}, [&] { finish_replacement(folder_.path()); });
  if (child.status == kNotPermitted) GTEST_SKIP() << "this machine does not let system calls fail";
  EXPECT_EQ(child.status, static_cast<int>(ExitCode::data)) << child.errors;
  EXPECT_EQ(settled(), new_);
}

TEST_F(ReplacementTest, WhatCannotBeFinishedIsNamed) {
  for (const auto& [name, content] : new_) folder_.file(".gpt-prepare-finished/" + name, content);
  const FolderLock lock(folder_.path(), ExitCode::config, "--output");
  EXPECT_ERROR(finish_replacement(folder_.path()), ExitCode::data,
               "are not all in their places: " + folder_.path() + " is in use by");
}

}  // namespace
}  // namespace gpt::data
