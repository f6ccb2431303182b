#include "gpt/diagnose/trial.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/scratch_folder.h"
#include "gpt/prepare/load_corpus.h"

namespace gpt {
namespace {

class TryingSteps : public testing::Test {
 protected:
  TryingSteps() {
    const std::string text = folder_.path() + "/text.txt";
    std::ofstream out(text);
    for (int i = 0; i < 2000; ++i) out << "line " << i << "\n";
    out.close();
    config_.data.text = text;
    config_.data.cache_dir = folder_.path() + "/cache";
    config_.model.n_layer = 2, config_.model.n_head = 2, config_.model.n_embd = 32, config_.model.block_size = 32;
    config_.model.dropout = 0;
    config_.training.batch_size = 4;
    corpus_ = load_corpus(config_.data, config_.model.block_size);
    config_.model.vocab_size = corpus_.vocab_size;
  }

  std::optional<Trial> attempt(double product_speed, int64_t largest_batch = 1000) {
    const DeviceInfo device = describe_device(at::kCPU);
    return try_steps(config_, corpus_, device, resolve_precision({.use_amp = false}, device), product_speed,
                     largest_batch, 0.2);
  }

  ScratchFolder folder_;
  Config config_;
  Corpus corpus_;
};

TEST_F(TryingSteps, TheWholeBatchIsTakenWhereItFits) {
  const auto trial = attempt(1e12);
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->batch_size, 4);
  EXPECT_GE(trial->updates, 1);  // no more on a machine that is busy with something else
  EXPECT_GT(trial->step_seconds, 0);
}

TEST_F(TryingSteps, AccumulationMultipliesTheTime) {
  const auto one = attempt(1e12);
  config_.training.gradient_accumulation_steps =
      1'000'000;  // so many that no pause of a busy machine counts beside them
  const auto many = attempt(1e12);
  ASSERT_TRUE(one && many);
  EXPECT_GT(many->step_seconds, 100 * one->step_seconds);
}

TEST_F(TryingSteps, MemoryAndTimeLimitTheBatch) {
  config_.training.batch_size = 64;
  EXPECT_EQ(attempt(1e12, 3)->batch_size, 3);
  EXPECT_FALSE(attempt(1e3)) << "a sequence takes minutes";
}

}  // namespace
}  // namespace gpt
