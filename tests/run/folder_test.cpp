// Where a run begins that goes on; tests/e2e/test_run_folder.py has what its user sees.
#include "gpt/run/folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "support/allocations.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() {
    Config config = tiny_config(corpus_);
    config.model.n_embd = 64;  // so that weights and moments are most of what is read
    checkpoint_ = State(config, corpus_, at::kCPU, device::Precision{}).capture();
  }

  std::string save(const std::string& name, int64_t step) {
    checkpoint_.step = step;
    checkpoint::save_checkpoint(root_ / name, checkpoint_);
    return std::filesystem::weakly_canonical(root_ / name).string();
  }
  bool has(const std::string& name) const { return std::filesystem::exists(root_ / name); }

  // Room for one checkpoint, and a quarter of another.
  int64_t room() {
    const test::Allocations allocations;
    (void)checkpoint::load_checkpoint(save(checkpoint::kLastCheckpoint, 9));
    return allocations.peak() + allocations.peak() / 4;
  }

  ScratchFolder root_;
  data::Corpus corpus_ = some_corpus();
  checkpoint::Checkpoint checkpoint_;
};

TEST_F(RunFolderTest, ARunThatWasStartedFromAPathHoldsOneCheckpointAtATime) {
  const std::string origin = root_.file("elsewhere/ckpt.pt", "");
  checkpoint_.started_by = std::filesystem::weakly_canonical(origin).string();
  const int64_t room = this->room();
  const Folder folder(root_.path());
  const test::Allocations allocations;
  const auto start = folder.find_start(origin, /*restart=*/false).start;
  EXPECT_EQ(start->checkpoint.step, 9);
  EXPECT_EQ(start->started_by, checkpoint_.started_by);
  EXPECT_TRUE(start->is_last);
  EXPECT_LT(allocations.peak(), room);
}

TEST_F(RunFolderTest, GoingBackHoldsOneCheckpointAtATimeAndReadsTheStepsOfNumberedOnesInTheirNames) {
  const int64_t room = this->room();
  save(checkpoint::kBestCheckpoint, 6);
  save("ckpt_mine.pt", 3);
  root_.file(checkpoint::numbered_checkpoint(2), "not read");
  root_.file(checkpoint::numbered_checkpoint(7), "not read");
  root_.file("ckpt_broken.pt", "nothing");
  const std::string path = save(checkpoint::numbered_checkpoint(4), 4);
  const Folder folder(root_.path());
  const test::Allocations allocations;
  const auto [start, in_the_way] = folder.find_start(path, /*restart=*/false);
  EXPECT_EQ(start->checkpoint.step, 4);
  EXPECT_FALSE(start->is_last);
  EXPECT_LT(allocations.peak(), room);
  EXPECT_FALSE(has(kSetAside)) << "the run may still be refused";
  folder.set_aside(in_the_way);
  for (const std::string& stays :
       {checkpoint::numbered_checkpoint(2), checkpoint::numbered_checkpoint(4), std::string("ckpt_mine.pt")})
    EXPECT_TRUE(has(stays)) << stays;
  for (const std::string& name : {checkpoint::numbered_checkpoint(7), std::string(checkpoint::kBestCheckpoint),
                                  std::string(checkpoint::kLastCheckpoint), std::string("ckpt_broken.pt")})
    EXPECT_TRUE(has("set_aside/1/" + name)) << name;
}

// Whose best checkpoint is elsewhere.
TEST_F(RunFolderTest, ARunThatBeginsInAnotherFolderHasNoBestCheckpointYet) {
  checkpoint_.best_val_loss = 1.5;
  const std::string origin = save(checkpoint::kLastCheckpoint, 9);
  const Folder folder(root_ / "next");
  const auto start = folder.find_start(origin, /*restart=*/false).start;
  EXPECT_EQ(start->checkpoint.step, 9);
  EXPECT_EQ(start->checkpoint.best_val_loss, std::numeric_limits<double>::infinity());
}

TEST_F(RunFolderTest, ADamagedCheckpointIsNoPlaceToGoBackTo) {
  save(checkpoint::kLastCheckpoint, 9);
  const std::string path = root_.file(checkpoint::numbered_checkpoint(4), "nothing");
  const Folder folder(root_.path());
  EXPECT_THROW((void)folder.find_start(path, /*restart=*/false), Error);
  EXPECT_TRUE(has(checkpoint::kLastCheckpoint)) << "what a run can go on from was set aside for one that it cannot";
}

TEST_F(RunFolderTest, ARestartLeavesTheOldRunUntilTheNewOneBegins) {
  const Folder folder(root_.path());
  const std::string path = save(checkpoint::kLastCheckpoint, 9);
  root_.file("metrics.jsonl", "{\"step\":3}\n");
  const auto [start, in_the_way] = folder.find_start("auto", /*restart=*/true);
  EXPECT_FALSE(start);
  EXPECT_EQ(folder.find_start(path, /*restart=*/true).start->checkpoint.step, 9) << "it may begin with the old run's";
  EXPECT_TRUE(has(checkpoint::kLastCheckpoint) && has("metrics.jsonl") && !has(kSetAside));
  folder.set_aside(in_the_way);
  EXPECT_FALSE(has(checkpoint::kLastCheckpoint) || has("metrics.jsonl"));
  EXPECT_TRUE(has("set_aside/1/ckpt.pt") && has("set_aside/1/metrics.jsonl"));
}

TEST_F(RunFolderTest, ALaunchersSecondStartIsARestartWhereTheFirstDidNotComeSoFar) {
  const Folder folder(root_.path());
  save(checkpoint::kLastCheckpoint, 9);
  EXPECT_TRUE(folder.is_still_to_restart(0));
  EXPECT_TRUE(folder.is_still_to_restart(1));
  folder.set_aside(folder.find_start("auto", /*restart=*/true).in_the_way);
  EXPECT_FALSE(folder.is_still_to_restart(2));
}

TEST_F(RunFolderTest, WhatCannotBeWrittenBesideTheStateIsAWarning) {
  const Folder folder(root_.path());
  root_.file("metrics.jsonl", "{\"step\":3}\n{\"step\":5}\n");
  root_.file("metrics.old.jsonl/in_the_way", "");
  root_.file("effective_config.yaml/in_the_way", "");
  test::CapturedLog log;
  folder.rewind_metrics(3);
  folder.write_config(config::dump(Config()), "");
  const std::string said = log.text();
  EXPECT_NE(said.find("; training continues, and " + root_.path() +
                      "/metrics.jsonl may still have lines of steps after 3\n"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("; training continues, and " + root_.path() +
                      "/effective_config.yaml does not show its configuration\n"),
            std::string::npos)
      << said;
  EXPECT_EQ(read_file(folder.metrics_path(), ExitCode::disk), "{\"step\":3}\n{\"step\":5}\n");
}

// ckpt.pt, the best one and one that is being written; and two for rollbacks.
TEST_F(RunFolderTest, CheckpointsForRollbacksNeedSpaceToo) {
  const Folder folder(root_.path());
  const uint64_t quarter = free_disk_space(root_.path()) / 4;
  TrainingConfig training;
  EXPECT_NO_THROW(folder.require_space(quarter, training, {}));
  training.cadence.divergence.reaction = OnDivergence::rollback;
  EXPECT_ERROR(folder.require_space(quarter, training, {}), ExitCode::disk, "the checkpoints of this run need");
  for (const int64_t step : {1, 2}) root_.file(checkpoint::rollback_checkpoint(step), "");
  EXPECT_NO_THROW(folder.require_space(quarter, training, {}));
  const InTheWay old{.names = {checkpoint::rollback_checkpoint(1),
                               checkpoint::rollback_checkpoint(2)}};  // which will still take their space
  EXPECT_ERROR(folder.require_space(quarter, training, old), ExitCode::disk, "the checkpoints of this run need");
  training.schedule.lr_schedule = LrSchedule::wsd;  // whose file is the fourth
  const uint64_t more = free_disk_space(root_.path()) / 7 * 2;
  EXPECT_ERROR(folder.require_space(more, training, {}), ExitCode::disk, "the checkpoints of this run need");
  root_.file(checkpoint::stable_checkpoint(3), "");
  EXPECT_NO_THROW(folder.require_space(more, training, {}));
}

}  // namespace
}  // namespace gpt::run
