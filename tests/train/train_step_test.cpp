// The update itself: accumulation is the full batch, and a bad batch changes nothing.
#include "gpt/train/train_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace gpt {
namespace {

constexpr int64_t kVocab = 29, kBlock = 8;

ModelConfig tiny_model() {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 16;
  config.block_size = kBlock;
  config.vocab_size = kVocab;
  config.vocab_multiple = 1;
  config.dropout = 0.0;
  return config;
}

Tokens some_tokens(int64_t count) {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * i + 7 * i) % kVocab);
  return Tokens::from_ids(ids, kVocab);
}

struct TinyRun {
  explicit TinyRun(const TrainingConfig& config)
      : model(tiny_model(), at::kCPU, 1),
        optimizer(model.parameters(), {}),
        scaler(false, at::kCPU),
        // 11 samples: (11 + 1) blocks of 8.
        loader(some_tokens(12 * kBlock), DataConfig{}, config.batch_size, kBlock, 5, at::kCPU),
        step(model, optimizer, scaler, Precision{}, config) {
    model.train(true);
  }
  GPT model;
  AdamW optimizer;
  GradScaler scaler;
  DataLoader loader;
  TrainStep step;
};

bool never() { return false; }

TrainingConfig with_batch(int64_t batch_size) {
  TrainingConfig config;
  config.batch_size = batch_size;
  return config;
}

std::vector<at::Tensor> values(const GPT& model) {
  std::vector<at::Tensor> copies;
  for (const auto& [name, value] : model.parameters()) copies.push_back(value.detach().clone());
  return copies;
}

TEST(TrainStep, UnevenMicroBatchesEqualTheFullBatch) {
  TinyRun whole(with_batch(11)), parts(with_batch(4));
  ASSERT_EQ(whole.loader.samples_per_epoch(), 11);
  const StepResult a = whole.step.run(whole.loader, 1, 1e-3, never);
  const StepResult b = parts.step.run(parts.loader, 3, 1e-3, never);  // 4 + 4 + 3 sequences
  EXPECT_EQ(a.tokens, 11 * kBlock);
  EXPECT_EQ(b.tokens, 11 * kBlock);
  // Both are float32 means over 88 tokens that differ only in the order of summation.
  const double eps = std::numeric_limits<float>::epsilon();
  EXPECT_NEAR(a.loss.item<double>(), b.loss.item<double>(), 88 * eps * a.loss.item<double>());
  EXPECT_NEAR(a.grad_norm.item<double>(), b.grad_norm.item<double>(), 88 * eps * a.grad_norm.item<double>());
}

TEST(TrainStep, NonFiniteLossChangesNothing) {
  TinyRun run(with_batch(4));
  run.step.run(run.loader, 1, 1e-3, never);
  const auto before = values(run.model);
  {
    at::NoGradGuard no_grad;
    run.model.parameters().back().second.view({-1})[0].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const StepResult bad = run.step.run(run.loader, 1, 1e-3, never);
  EXPECT_EQ(bad.skipped.item<float>(), 1.0f);
  EXPECT_EQ(run.optimizer.step_count().item<float>(), 1.0f);
  {
    at::NoGradGuard no_grad;
    run.model.parameters().back().second.copy_(before.back());
  }
  const auto after = values(run.model);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << run.model.parameters()[i].first;
  const StepResult good = run.step.run(run.loader, 1, 1e-3, never);
  EXPECT_EQ(good.skipped.item<float>(), 0.0f);
  EXPECT_EQ(run.optimizer.step_count().item<float>(), 2.0f);
}

TEST(TrainStep, StopBetweenMicroBatchesLeavesTheParametersAlone) {
  TinyRun run(with_batch(4));
  const auto before = values(run.model);
  const StepResult result = run.step.run(run.loader, 3, 1e-3, [] { return true; });
  EXPECT_FALSE(result.loss.defined());
  const auto after = values(run.model);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
  EXPECT_TRUE(run.optimizer.gradients().empty());
}

}  // namespace
}  // namespace gpt
