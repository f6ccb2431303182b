// The update itself: accumulation is the full batch, and a bad batch changes nothing.
#include "gpt/train/train_step.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <limits>
#include <thread>
#include <vector>

#include "core/child_process.h"
#include "gpt/core/process.h"

namespace gpt {
namespace {

constexpr int64_t kVocab = 40, kBlock = 16;

ModelConfig tiny_model() {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 32;
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
        // 11 samples: (11 + 1) blocks.
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
  // Both are float32 means over the same tokens that differ only in the order of summation.
  const double eps = std::numeric_limits<float>::epsilon();
  EXPECT_NEAR(a.loss.item<double>(), b.loss.item<double>(), 11 * kBlock * eps * a.loss.item<double>());
  EXPECT_NEAR(a.grad_norm.item<double>(), b.grad_norm.item<double>(), 11 * kBlock * eps * a.grad_norm.item<double>());
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

// Hundreds of signals in the middle of forward and backward, as `kill -USR1` and Ctrl-C send them.
TEST(TrainStep, SignalsDuringTheComputationChangeNothing) {
  const auto final_loss = [] {
    at::set_num_threads(1);  // a forked child has none of the threads that its parent may have started
    TinyRun run(with_batch(4));
    double loss = 0;
    for (int step = 0; step < 100; ++step) loss = run.step.run(run.loader, 1, 1e-3, never).loss.item<double>();
    return loss;
  };
  const ChildResult quiet = run_child([&] { return std::fprintf(stderr, "%.17g", final_loss()) < 0; });
  const ChildResult noisy = run_child([&] {
    process::watch_signals();
    std::atomic<bool> done{false};
    std::thread sender([&done] {
      while (!done) kill(getpid(), SIGUSR1), usleep(200);
    });
    const double loss = final_loss();
    done = true;
    sender.join();
    return std::fprintf(stderr, "%.17g", loss) < 0 || !process::take_save_request();
  });
  EXPECT_EQ(noisy.status, 0) << noisy.errors;
  EXPECT_EQ(noisy.errors, quiet.errors);
}

}  // namespace
}  // namespace gpt
