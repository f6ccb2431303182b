#include "gpt/checkpoint/file_names.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/file.h"

namespace gpt::checkpoint {
namespace {

TEST(CheckpointNames, ANumberedOneBearsItsStep) {
  EXPECT_EQ(numbered_checkpoint(1000), "ckpt_step_00001000.pt");
  for (const int64_t step : {int64_t{0}, int64_t{12}, int64_t{123456789012}})
    EXPECT_EQ(step_in_name(numbered_checkpoint(step)), step);
  for (const char* other : {kLastCheckpoint, kBestCheckpoint, "ckpt_step_.pt", "ckpt_step_12x.pt", "ckpt_step_12"})
    EXPECT_EQ(step_in_name(other), std::nullopt) << other;
}

TEST(CheckpointNames, OneForARollbackBearsItsStepToo) {
  EXPECT_EQ(rollback_checkpoint(1000), "ckpt_rollback_00001000.pt");
  EXPECT_EQ(step_in_name(rollback_checkpoint(123456789012)), 123456789012);
  EXPECT_TRUE(is_for_rollback(rollback_checkpoint(7)));
  EXPECT_FALSE(is_numbered(rollback_checkpoint(7)));
  EXPECT_FALSE(is_for_rollback(numbered_checkpoint(7)));
}

TEST(CheckpointNames, OneFromBeforeADecayBearsItsStepToo) {
  EXPECT_EQ(stable_checkpoint(1000), "ckpt_stable_00001000.pt");
  EXPECT_EQ(step_in_name(stable_checkpoint(123456789012)), 123456789012);
  EXPECT_TRUE(is_stable(stable_checkpoint(7)));
  EXPECT_FALSE(is_stable(numbered_checkpoint(7)));
  EXPECT_FALSE(is_numbered(stable_checkpoint(7)) || is_for_rollback(stable_checkpoint(7)));
}

TEST(CheckpointNames, AFolderStandsForItsLastCheckpoint) {
  const ScratchFolder folder;
  EXPECT_EQ(checkpoint_file(folder.path()), folder / kLastCheckpoint);
  EXPECT_EQ(checkpoint_file(folder / kBestCheckpoint), folder / kBestCheckpoint);
  EXPECT_EQ(checkpoint_file(""), "");
  const std::string numbered[] = {numbered_checkpoint(5), numbered_checkpoint(20)};
  const std::string for_rollback = rollback_checkpoint(10), stable = stable_checkpoint(20),
                    later = stable_checkpoint(100);
  for (const std::string& name : {std::string(kBestCheckpoint), numbered[0], for_rollback, stable, numbered[1], later,
                                  std::string(kLastCheckpoint)}) {
    const std::string path = folder.file(name, "");  // each is newer than those before it
    EXPECT_EQ(checkpoint_file(folder.path()), path);
  }
  EXPECT_EQ(newest_first(folder.path(), names_in(folder.path())),
            (std::vector<std::string>{folder / kLastCheckpoint, folder / later, folder / numbered[1], folder / stable,
                                      folder / for_rollback, folder / numbered[0], folder / kBestCheckpoint}));
}

TEST(CheckpointNames, ResumeFromNamesACheckpointUnlessItIsARule) {
  EXPECT_FALSE(names_checkpoint("auto"));
  EXPECT_FALSE(names_checkpoint("none"));
  EXPECT_TRUE(names_checkpoint("models/auto"));
}

}  // namespace
}  // namespace gpt::checkpoint
