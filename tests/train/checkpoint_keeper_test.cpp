#include "gpt/train/checkpoint_keeper.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "core/scratch_folder.h"
#include "train/tiny_run.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

class CheckpointKeeperTest : public testing::Test {
 protected:
  static Config config_for(const Corpus& corpus) {
    Config config = tiny_config(corpus);
    config.training.cadence.checkpoint_interval = {2, Interval::Unit::steps};
    return config;
  }

  void update(bool is_skipped = false) {
    ++state_.step;
    const ops::UpdateCounts& counts = state_.counts();
    counts.skipped.add_(is_skipped);
    is_skipped ? counts.skipped_in_a_row.add_(1) : counts.skipped_in_a_row.zero_();
    keeper_.state_changed();
  }
  bool has(const std::string& name) const { return fs::exists(root_ / name); }

  ScratchFolder root_;
  RunFolder folder_{root_.path()};
  Corpus corpus_ = some_corpus();
  Config config_ = config_for(corpus_);
  RunState state_{config_, corpus_, at::kCPU, Precision{}};
  RunPlan plan_ = plan_run(config_.training, state_.loader.batches_per_epoch());
  Listeners listeners_;
  Forecast forecast_{plan_, 0};
  CheckpointKeeper keeper_{state_, folder_, plan_, /*keep_last=*/1, listeners_, forecast_, /*is_saved=*/false};
};

TEST_F(CheckpointKeeperTest, ACheckpointWaitsWhileUpdatesAreSkipped) {
  update();
  EXPECT_FALSE(keeper_.is_due());
  update(/*is_skipped=*/true);
  EXPECT_FALSE(keeper_.is_due());
  update();
  EXPECT_TRUE(keeper_.is_due());
  EXPECT_FALSE(keeper_.is_saved());
  keeper_.save_due();
  EXPECT_TRUE(keeper_.is_saved());
  EXPECT_EQ(keeper_.saved_step(), 3);
  EXPECT_FALSE(keeper_.is_due());
  update();
  EXPECT_TRUE(keeper_.is_due());
  EXPECT_FALSE(keeper_.is_saved());
  keeper_.save_due();
  EXPECT_FALSE(has(numbered_checkpoint(3)));
  EXPECT_TRUE(has(numbered_checkpoint(4)));
}

TEST_F(CheckpointKeeperTest, ABestOneThatTheDiskRefusedIsTriedAgainAtTheEnd) {
  fs::create_directory(folder_.best_path());  // no file can take its place
  update();
  state_.evaluated_step = 1;
  testing::internal::CaptureStderr();
  keeper_.save_best(2.5);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("training continues"), std::string::npos);
  EXPECT_TRUE(std::isinf(state_.best_val_loss)) << "a later evaluation would not be saved";
  EXPECT_FALSE(keeper_.is_saving());
  fs::remove(folder_.best_path());
  keeper_.save_the_rest();
  EXPECT_EQ(load_checkpoint(folder_.best_path()).best_val_loss, 2.5);
  EXPECT_EQ(load_checkpoint(folder_.checkpoint_path()).best_val_loss, 2.5) << "it was saved before the best one";
}

}  // namespace
}  // namespace gpt
