#include "gpt/train/checkpoint_keeper.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/file.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace gpt::train {
namespace {

namespace fs = std::filesystem;

// With files that are written at once, and in the background from a copy.
class CheckpointKeeperTest : public testing::TestWithParam<AsyncCheckpoint> {
 protected:
  static Config config_for(const data::Corpus& corpus) {
    Config config = tiny_config(corpus);
    config.training.cadence.checkpoint_interval = {2, Interval::Unit::steps};
    config.training.cadence.keep_last = 1;
    config.training.cadence.async_checkpoint = GetParam();
    return config;
  }

  void write() { keeper_.begin_writing(), keeper_.settle(); }

  void update(bool is_skipped = false) {
    ++state_.step;
    const ops::UpdateCounts& counts = state_.counts();
    counts.skipped.add_(is_skipped);
    is_skipped ? counts.skipped_in_a_row.add_(1) : counts.skipped_in_a_row.zero_();
    keeper_.state_changed();
  }
  bool has(const std::string& name) const { return fs::exists(root_ / name); }

  ScratchFolder place_;
  const fs::path root_ = place_ / "run", moved_ = place_ / "moved", other_ = place_ / "other";
  run::Folder folder_{root_};
  data::Corpus corpus_ = some_corpus();
  Config config_ = config_for(corpus_);
  run::State state_{config_, corpus_, at::kCPU, device::Precision{}};
  run::Plan plan_ = run::plan_run(config_.training, state_.loader.batches_per_epoch());
  report::Listeners listeners_;
  run::Forecast forecast_{plan_, 0};
  CheckpointKeeper keeper_{state_,     folder_,   {plan_, config_.training.cadence},
                           listeners_, forecast_, /*is_saved=*/false};
};

TEST_P(CheckpointKeeperTest, ACheckpointWaitsWhileUpdatesAreSkipped) {
  update();
  EXPECT_FALSE(keeper_.is_due());
  update(/*is_skipped=*/true);
  EXPECT_FALSE(keeper_.is_due());
  update();
  EXPECT_TRUE(keeper_.is_due());
  EXPECT_FALSE(keeper_.is_saved());
  keeper_.save_due(), write();
  EXPECT_TRUE(keeper_.is_saved());
  EXPECT_EQ(keeper_.saved_step(), 3);
  EXPECT_FALSE(keeper_.is_due());
  update();
  EXPECT_TRUE(keeper_.is_due());
  EXPECT_FALSE(keeper_.is_saved());
  keeper_.save_due(), write();
  EXPECT_FALSE(has(checkpoint::numbered_checkpoint(3)));
  EXPECT_TRUE(has(checkpoint::numbered_checkpoint(4)));
}

TEST_P(CheckpointKeeperTest, TheOneBeforeADecayReplacesThatOfAnEarlierDecay) {
  update();
  keeper_.save_stable(), write();
  update();
  EXPECT_EQ(checkpoint::load_checkpoint(folder_.stable_path(1)).step, 1);
  keeper_.save_stable(), keeper_.save_due(), write();
  EXPECT_EQ(checkpoint::load_checkpoint(folder_.stable_path(2)).step, 2);
  EXPECT_FALSE(has(checkpoint::stable_checkpoint(1)));
  EXPECT_TRUE(has(checkpoint::numbered_checkpoint(2)));
}

TEST_P(CheckpointKeeperTest, TheOneBeforeAnEarlierDecayStaysWhereTheDiskRefusesTheNext) {
  update();
  keeper_.save_stable(), write();
  update();
  fs::create_directory(folder_.stable_path(2));  // no file can take its place
  test::CapturedLog log;
  keeper_.save_stable(), write();
  EXPECT_NE(log.text().find("training continues"), std::string::npos);
  EXPECT_TRUE(has(checkpoint::stable_checkpoint(1)));
}

TEST_P(CheckpointKeeperTest, ABestOneThatTheDiskRefusedIsTriedAgainAtTheEnd) {
  fs::create_directory(folder_.best_path());  // no file can take its place
  update();
  state_.evaluated_step = 1;
  test::CapturedLog log;
  keeper_.save_best(2.5), write();
  EXPECT_NE(log.text().find("training continues"), std::string::npos);
  EXPECT_TRUE(std::isinf(state_.best_val_loss)) << "a later evaluation would not be saved";
  EXPECT_FALSE(keeper_.is_saving());
  fs::remove(folder_.best_path());
  keeper_.save_the_rest();
  EXPECT_EQ(checkpoint::load_checkpoint(folder_.best_path()).best_val_loss, 2.5);
  EXPECT_EQ(checkpoint::load_checkpoint(folder_.checkpoint_path()).best_val_loss, 2.5)
      << "it was saved before the best one";
}

TEST_P(CheckpointKeeperTest, TheFilesOfAStepAreOne) {
  update();
  keeper_.save_due(), keeper_.save_best(2.5), write();
  EXPECT_EQ(fs::hard_link_count(folder_.checkpoint_path()), 3U);
  EXPECT_TRUE(fs::equivalent(folder_.checkpoint_path(), folder_.best_path()));
  EXPECT_TRUE(fs::equivalent(folder_.checkpoint_path(), folder_.numbered_path(1)));
  update();
  keeper_.save_best(2), write();
  keeper_.save_the_rest();  // the same state
  EXPECT_TRUE(fs::equivalent(folder_.checkpoint_path(), folder_.best_path()));
  EXPECT_EQ(checkpoint::load_checkpoint(folder_.checkpoint_path()).best_val_loss, 2);
  EXPECT_EQ(checkpoint::load_checkpoint(folder_.numbered_path(1)).step, 1);
  EXPECT_TRUE(keeper_.is_saved());
}

TEST_P(CheckpointKeeperTest, ABestLossThatIsInNoCheckpointIsSaidAtTheEnd) {
  fs::create_directory(folder_.best_path());
  update();
  test::CapturedLog log;
  keeper_.save_best(2.5), write();
  update();
  keeper_.save_the_rest();
  const std::string text = log.text();
  EXPECT_NE(text.find("training continues, and the next validation with a new best loss tries again"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("the best validation loss, 2.5000 at step 1, is in no checkpoint"), std::string::npos) << text;
}

TEST_P(CheckpointKeeperTest, WhatTheDiskRefusesNamesWhatCouldGo) {
  update();
  keeper_.save_due(), write();
  fs::rename(folder_.checkpoint_path(), root_ / "kept"), fs::create_directory(folder_.checkpoint_path());
  update();
  EXPECT_ERROR(keeper_.save_last(/*must=*/true), ExitCode::disk,
               "; to make room, remove " + folder_.numbered().front());
}

// What somebody does to the folder of a run that goes on, and where its checkpoint is then.
TEST_P(CheckpointKeeperTest, AFolderThatIsNoLongerTheRunsIsNotWrittenTo) {
  struct Case {
    const char* name;
    std::function<void()> change;
    std::string saved_in;
  };
  std::unique_ptr<run::Folder> another;
  const Case cases[] = {
      {"moved", [&] { fs::rename(root_, moved_); }, moved_},
      {"replaced", [&] { fs::rename(root_, moved_), fs::create_directory(root_); }, moved_},
      {"in use by another run", [&] { fs::rename(root_, moved_), another = std::make_unique<run::Folder>(root_); },
       moved_},
      {"a link to elsewhere",
       [&] { fs::rename(root_, moved_), fs::create_directory(other_), fs::create_symlink(other_, root_); }, moved_},
      {"deleted", [&] { fs::remove_all(root_); }, root_},
      {"deleted and made anew", [&] { fs::remove_all(root_), fs::create_directory(root_); }, root_.string() + "-2"},
      {"its lock removed", [&] { fs::remove(root_ / ".lock"); }, root_},
      {"its lock taken", [&] { fs::remove(root_ / ".lock"), another = std::make_unique<run::Folder>(root_); },
       root_.string() + "-2"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    fs::remove_all(place_.path()), fs::create_directory(place_.path());
    const run::Folder folder(root_);
    CheckpointKeeper keeper(state_, folder, {plan_}, listeners_, forecast_, /*is_saved=*/false);
    c.change();
    EXPECT_ERROR(keeper.save_last(/*must=*/false), ExitCode::disk, c.saved_in + "; the same command with --output_dir");
    another.reset();
    EXPECT_TRUE(fs::exists(fs::path(c.saved_in) / checkpoint::kLastCheckpoint));
    EXPECT_EQ(fs::exists(root_ / checkpoint::kLastCheckpoint), c.saved_in == root_);
  }
}

TEST_P(CheckpointKeeperTest, AFolderThatWasMovedAndLinkedIsStillTheRuns) {
  fs::rename(root_, moved_), fs::create_symlink(moved_, root_);
  update();
  keeper_.save_last(/*must=*/true);
  EXPECT_TRUE(fs::exists(moved_ / checkpoint::kLastCheckpoint));
}

TEST_P(CheckpointKeeperTest, WhatIsWantedWhenARunStopsIsWritten) {
  update();
  state_.evaluated_step = 1;
  keeper_.save_best(2.5), keeper_.save_due();
  keeper_.save_the_rest();
  for (const std::string& path : {folder_.best_path(), folder_.checkpoint_path()})
    EXPECT_EQ(checkpoint::load_checkpoint(path).best_val_loss, 2.5) << path;
  EXPECT_TRUE(has(checkpoint::numbered_checkpoint(1)));
  EXPECT_TRUE(keeper_.is_saved());
}

TEST_P(CheckpointKeeperTest, WhatChangesAfterwardsIsNotInTheFile) {
  update();
  const at::Tensor first = state_.model.parameters().values().front().second.detach(), before = first.clone();
  keeper_.save_due(), keeper_.begin_writing();
  first.add_(1);
  update();
  keeper_.settle();
  EXPECT_EQ(keeper_.saved_step(), 1);
  EXPECT_FALSE(keeper_.is_saved());
  const checkpoint::Checkpoint saved = checkpoint::load_checkpoint(folder_.checkpoint_path());
  EXPECT_EQ(saved.step, 1);
  EXPECT_TRUE(saved.model.front().second.equal(before)) << saved.model.front().first;
}

TEST_P(CheckpointKeeperTest, ABestOneThatTheDiskRefusesKeepsNoOtherFromBeingWritten) {
  fs::create_directory(folder_.best_path());
  update();
  state_.evaluated_step = 1;
  keeper_.save_best(2.5), keeper_.save_due(), write();
  EXPECT_TRUE(std::isinf(checkpoint::load_checkpoint(folder_.checkpoint_path()).best_val_loss))
      << "no file holds the best";
  EXPECT_TRUE(has(checkpoint::numbered_checkpoint(1)));
  update();
  state_.evaluated_step = 2;
  fs::remove(folder_.best_path());
  keeper_.save_the_rest();
  EXPECT_FALSE(has(fs::path(folder_.best_path()).filename())) << "this state was not the best";
}

TEST_P(CheckpointKeeperTest, AnErrorBeforeABestOneIsWrittenDoesNotMakeItTheBest) {
  update();
  keeper_.save_best(2.5);
  keeper_.save_last(/*must=*/true);
  EXPECT_TRUE(std::isinf(checkpoint::load_checkpoint(folder_.checkpoint_path()).best_val_loss));
}

TEST_P(CheckpointKeeperTest, OneThatTheDiskRefusesLeavesTheOneBefore) {
  update();
  keeper_.save_due(), write();
  fs::rename(folder_.checkpoint_path(), root_ / "kept"), fs::create_directory(folder_.checkpoint_path());
  update();
  test::CapturedLog log;
  keeper_.save_due(), write();
  EXPECT_NE(log.text().find("training continues"), std::string::npos) << log.text();
  EXPECT_EQ(keeper_.saved_step(), 1);
  EXPECT_FALSE(keeper_.is_saved());
  EXPECT_FALSE(keeper_.is_saving());
}

// A run that may go back, and saves every two steps.
class RollbackFilesTest : public CheckpointKeeperTest {
 protected:
  void SetUp() override {
    cadence_.divergence.reaction = OnDivergence::rollback;
    cadence_.divergence.spike_window = 3;
    open();
  }
  void open() {
    goes_back_.emplace(state_, folder_, CheckpointCadence{plan_, cadence_}, listeners_, forecast_, /*is_saved=*/false);
  }

  // Updates up to this one, and what is due after each.
  void go_to(int64_t step) {
    while (state_.step < step) {
      update();
      goes_back_->state_changed();
      if (!goes_back_->is_due()) continue;
      goes_back_->save_due(), goes_back_->begin_writing(), goes_back_->settle();
    }
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    for (const std::string& name : names_in(root_))
      if (checkpoint::is_for_rollback(name)) found.push_back(checkpoint::step_in_name(name).value());
    return found;
  }
  // The step that a spike in the next update leads back to.
  std::optional<int64_t> before_spike() {
    ++state_.step;
    const auto found = goes_back_->before_spike(*distributed::alone());
    --state_.step;
    return found ? std::optional(found->step) : std::nullopt;
  }

  CadenceConfig cadence_ = config_.training.cadence;
  std::optional<CheckpointKeeper> goes_back_;
};

TEST_P(RollbackFilesTest, OneWaitsUntilEnoughUpdatesHaveFollowedIt) {
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(before_spike(), std::nullopt);
  const std::pair<int64_t, Steps> expected[] = {{2, {2}}, {4, {2}}, {6, {2, 6}}, {8, {2, 6}}, {10, {6, 10}}};
  for (const auto& [step, files] : expected) {
    go_to(step);
    EXPECT_EQ(steps(), files) << step;
  }
  EXPECT_EQ(state_.proven_step, 6);
  EXPECT_EQ(state_.waiting_step, 10);
  EXPECT_EQ(checkpoint::load_checkpoint(folder_.checkpoint_path()).waiting_step, 10)
      << "a run that resumes knows of it";
}

TEST_P(RollbackFilesTest, TheLastProvenOneIsGoneBackToOrElseTheOther) {
  go_to(2);
  EXPECT_EQ(before_spike(), 2) << "none is proven";
  go_to(11);
  EXPECT_EQ(before_spike(), 6);
  fs::remove(folder_.rollback_path(6));
  EXPECT_EQ(before_spike(), 10) << "the file of 6 is not there";
  go_to(13);
  EXPECT_EQ(before_spike(), 10);
  fs::remove(folder_.rollback_path(10));
  EXPECT_EQ(before_spike(), std::nullopt);
}

TEST_P(RollbackFilesTest, OneThatTheDiskRefusesIsTriedAgain) {
  fs::create_directories(folder_.rollback_path(2) + "/full");  // no file can take its place
  go_to(2);
  EXPECT_EQ(state_.waiting_step, std::nullopt);
  go_to(4);
  EXPECT_EQ(state_.waiting_step, 4);
  EXPECT_EQ(before_spike(), 4);
}

TEST_P(RollbackFilesTest, ARunThatResumesKnowsOnlyThoseThatAreThere) {
  go_to(6);
  fs::remove(folder_.rollback_path(2));
  open();
  EXPECT_EQ(state_.proven_step, std::nullopt);
  EXPECT_EQ(state_.waiting_step, 6);
  cadence_.divergence.reaction = OnDivergence::off;
  open();
  EXPECT_EQ(state_.waiting_step, std::nullopt);
}

// The one of step 4 waits for an update that is applied, whether or not the run stops before.
TEST_P(RollbackFilesTest, ACheckpointStillWaitsAfterAStop) {
  go_to(3);
  update(/*is_skipped=*/true);
  open();
  update();
  EXPECT_TRUE(goes_back_->is_due());
  open();
  EXPECT_FALSE(goes_back_->is_due()) << "the last update was applied, so that what was due has been saved";
}

INSTANTIATE_TEST_SUITE_P(Ways, RollbackFilesTest, testing::Values(AsyncCheckpoint::off, AsyncCheckpoint::on),
                         [](const auto& way) { return way.param == AsyncCheckpoint::on ? "background" : "at_once"; });
INSTANTIATE_TEST_SUITE_P(Ways, CheckpointKeeperTest, testing::Values(AsyncCheckpoint::off, AsyncCheckpoint::on),
                         [](const auto& way) { return way.param == AsyncCheckpoint::on ? "background" : "at_once"; });

}  // namespace
}  // namespace gpt::train
