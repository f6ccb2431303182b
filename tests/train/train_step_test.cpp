// The update itself: accumulation is the full batch, and a bad batch changes nothing.
#include "gpt/train/train_step.h"

#include <ATen/Parallel.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/child_process.h"
#include "gpt/core/process.h"
#include "gpt/device/graph.h"
#include "gpt/device/random_state.h"
#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt {
namespace {

constexpr int64_t kVocab = 40, kBlock = 16;

ModelConfig tiny_model(double dropout) {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 32;
  config.block_size = kBlock;
  config.vocab_size = kVocab;
  config.vocab_multiple = 1;
  config.dropout = dropout;
  return config;
}

Tokens some_tokens(int64_t count) {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * i + 7 * i) % kVocab);
  return Tokens::from_ids(ids, kVocab);
}

struct TinyRun {
  explicit TinyRun(const TrainingConfig& config, at::Device device = at::kCPU, const Precision& precision = {},
                   double dropout = 0, Recorder recorder = Recorder())
      : model(tiny_model(dropout), device, 1, {.compute = precision.weight_type()}),
        optimizer(model.parameters(), {}),
        scaler(precision.grad_scaler, device),
        // 11 samples: (11 + 1) blocks.
        loader(some_tokens(12 * kBlock), DataConfig{}, config.batch_size, kBlock, 5, device),
        step(model, optimizer, scaler, precision, config, std::move(recorder)) {
    model.train(true);
  }
  GPT model;
  AdamW optimizer;
  GradScaler scaler;
  DataLoader loader;
  TrainStep step;
};

class TrainStepTest : public DeviceTest {};

bool never() { return false; }

Precision autocast() {
  Precision precision;
  precision.dtype = Dtype::bfloat16;
  return precision;
}

Precision end_to_end() {
  Precision precision;
  precision.dtype = Dtype::bfloat16;
  precision.end_to_end = true;
  return precision;
}

Precision with_scaler() {
  Precision precision;
  precision.grad_scaler = true;
  return precision;
}

TrainingConfig with_batch(int64_t batch_size) {
  TrainingConfig config;
  config.batch_size = batch_size;
  return config;
}

std::vector<at::Tensor> values(const GPT& model) {
  std::vector<at::Tensor> copies;
  for (const auto& [name, value] : model.parameters().values()) copies.push_back(value.detach().clone());
  return copies;
}

TEST_P(TrainStepTest, UnevenMicroBatchesEqualTheFullBatch) {
  TinyRun whole(with_batch(11), device()), parts(with_batch(4), device());
  ASSERT_EQ(whole.loader.samples_per_epoch(), 11);
  EXPECT_EQ(run_update(whole.step, whole.loader, 1, 1e-3, never), 11 * kBlock);
  EXPECT_EQ(run_update(parts.step, parts.loader, 3, 1e-3, never), 11 * kBlock);  // 4 + 4 + 3 sequences
  // Both are float32 means over the same tokens that differ only in the order of summation.
  const double eps = std::numeric_limits<float>::epsilon();
  const double loss = whole.step.loss().item<double>(), norm = whole.step.grad_norm().item<double>();
  EXPECT_NEAR(loss, parts.step.loss().item<double>(), 11 * kBlock * eps * loss);
  EXPECT_NEAR(norm, parts.step.grad_norm().item<double>(), 11 * kBlock * eps * norm);
}

// The second update overwrites the gradients of the first: nothing of them is left.
TEST_P(TrainStepTest, UpdatesStartWithoutTheGradientsOfTheLast) {
  TinyRun once(with_batch(11), device()), twice(with_batch(11), device());
  run_update(twice.step, twice.loader, 1, /*learning_rate=*/0, never);
  twice.loader.seek({});
  run_update(once.step, once.loader, 1, 0, never);
  run_update(twice.step, twice.loader, 1, 0, never);
  EXPECT_EQ(once.step.grad_norm().item<float>(), twice.step.grad_norm().item<float>());
}

TEST_P(TrainStepTest, NonFiniteLossChangesNothing) {
  TinyRun run(with_batch(4), device());
  run_update(run.step, run.loader, 1, 1e-3, never);
  const auto before = values(run.model);
  const at::Tensor last = run.model.parameters().values().back().second.detach();
  last.view({-1})[0].fill_(std::numeric_limits<float>::quiet_NaN());
  run_update(run.step, run.loader, 1, 1e-3, never);
  EXPECT_EQ(run.step.skipped().item<float>(), 1.0f);
  EXPECT_EQ(run.optimizer.state().step_count.item<float>(), 1.0f);
  last.copy_(before.back());
  const auto after = values(run.model);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(before[i], after[i])) << run.model.parameters().rows()[i].name;
  run_update(run.step, run.loader, 1, 1e-3, never);
  EXPECT_EQ(run.step.skipped().item<float>(), 0.0f);
  EXPECT_EQ(run.optimizer.state().step_count.item<float>(), 2.0f);
}

TEST_P(TrainStepTest, StopBetweenMicroBatchesLeavesTheParametersAlone) {
  TinyRun run(with_batch(4), device());
  const auto before = values(run.model);
  EXPECT_FALSE(run_update(run.step, run.loader, 3, 1e-3, [] { return true; }));
  const auto after = values(run.model);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
  EXPECT_THROW((void)run.model.parameters().flat_gradients(), c10::Error)
      << "half an update's gradients are not for use";
}

// Stands in for a graph on a CPU: does again what it was given, and undoes what a replay on a GPU does not do, which is to note
// on the host that there are gradients.
struct RepeatedCall : Graph {
  RepeatedCall(const GPT*& model, int& replays) : model(model), replays(replays) {}
  void record(const std::function<void()>& work) override { this->work = work; }
  void replay() override {
    const bool had_gradient = model->parameters()[0].has_gradient();
    ++replays, work();
    if (!had_gradient) model->parameters().clear_gradients();
  }

  std::function<void()> work;
  const GPT*& model;
  int& replays;
};

struct RepeatedCalls : Graphs {
  RepeatedCalls(const GPT*& model, int& replays) : model(model), replays(replays) {}
  std::unique_ptr<Graph> make() override { return std::make_unique<RepeatedCall>(model, replays); }
  void run(const std::function<void()>& work) override { work(); }

  const GPT*& model;
  int& replays;
};

// Micro-batches of two shapes, with dropout: what is replayed reads the batch and the learning rate of the time and draws new
// random numbers.
TEST_P(TrainStepTest, ARecordedStepLearnsWhatAnEagerOneLearns) {
  constexpr int kUpdates = 8;
  use_recordable_stream(device());
  int replays = 0;
  const GPT* model = nullptr;
  std::unique_ptr<Graphs> graphs = graphs_of(device());
  if (device().is_cpu()) graphs = std::make_unique<RepeatedCalls>(model, replays);
  std::vector<double> losses[2];
  std::vector<at::Tensor> weights[2];
  for (const bool is_recorded : {false, true}) {
    seed_random_state(device(), 3);
    TinyRun run(with_batch(4), device(), {}, /*dropout=*/0.1, is_recorded ? Recorder(std::move(graphs)) : Recorder());
    model = &run.model;
    for (int update = 0; update < kUpdates; ++update) {
      run.step.abandon();  // as after a stop
      ASSERT_TRUE(run_update(run.step, run.loader, 3, 1e-3 * (1 + update), never));
      losses[is_recorded].push_back(run.step.loss().item<double>());
      EXPECT_NO_THROW((void)run.model.parameters().flat_gradients());
    }
    EXPECT_EQ(run.step.is_recorded(), is_recorded);
    weights[is_recorded] = values(run.model);
  }
  // On a GPU sums whose order is not fixed may differ; other batches or random numbers would differ by far more.
  const double bound = device().is_cpu() ? 0 : 1e-4;
  for (int update = 0; update < kUpdates; ++update) EXPECT_NEAR(losses[1][update], losses[0][update], bound) << update;
  for (size_t i = 0; i < weights[0].size(); ++i)
    EXPECT_LE(at::max(at::abs(weights[1][i] - weights[0][i])).item<double>(), bound) << i;
  // Three keys of micro-batches (4 first, 4 later, 3 later) and the update, each replayed from its fourth run on.
  const int expected = device().is_cpu() ? 4 * (kUpdates - Recorder::kRunsBefore) : 0;
  EXPECT_EQ(replays, expected);
}

TEST_P(TrainStepTest, AnAbandonedUpdateLeavesNoTraceInTheNext) {
  TinyRun undisturbed(with_batch(4), device()), disturbed(with_batch(4), device());
  const at::Tensor random = random_state(device());
  EXPECT_TRUE(run_update(undisturbed.step, undisturbed.loader, 3, 1e-3, never));
  set_random_state(device(), random);
  EXPECT_FALSE(run_update(disturbed.step, disturbed.loader, 3, 1e-3, [] { return true; }));
  set_random_state(device(), random);
  disturbed.loader.seek({});
  EXPECT_TRUE(run_update(disturbed.step, disturbed.loader, 3, 1e-3, never));
  const auto expected = values(undisturbed.model), got = values(disturbed.model);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(expected[i], got[i])) << disturbed.model.parameters().rows()[i].name;
}

TEST_P(TrainStepTest, SixteenBitsGiveTheSameWithinTheirRounding) {
  for (const Precision& precision : {autocast(), end_to_end()}) {
    TinyRun exact(with_batch(4), device()), rounded(with_batch(4), device(), precision);
    for (TinyRun* run : {&exact, &rounded}) run_update(run->step, run->loader, 2, 1e-3, never);
    const double loss = exact.step.loss().item<double>(), norm = exact.step.grad_norm().item<double>();
    const double rounded_loss = rounded.step.loss().item<double>(),
                 rounded_norm = rounded.step.grad_norm().item<double>();
    EXPECT_FALSE(rounded_loss == loss && rounded_norm == norm) << "nothing was rounded";  // one may agree by chance
    EXPECT_NEAR(rounded_loss, loss, test::tolerance(at::kBFloat16, 4 * 16, loss));
    EXPECT_NEAR(rounded_norm, norm, test::tolerance(at::kBFloat16, 8 * 16, norm));
  }
}

// The weights of a normalization begin at 1, where bfloat16 has steps of 2^-8: updates smaller than half of that add up in float32.
TEST_P(TrainStepTest, EndToEndLearnsFromUpdatesThatRoundingWouldLose) {
  constexpr double kRate = 1e-5;
  constexpr int kUpdates = 12;
  TinyRun run(with_batch(4), device(), end_to_end());
  for (int update = 0; update < kUpdates; ++update) run_update(run.step, run.loader, 2, kRate, never);
  const Parameter norm = run.model.parameters().weight(ParameterRole::mlp_norm, 0);
  EXPECT_GT(at::max(at::abs(norm.value().detach() - 1)).item<double>(), kUpdates * kRate / 2);
  EXPECT_TRUE(norm.compute_value().eq(1).all().item<bool>());
  const Parameters& all = run.model.parameters();
  EXPECT_TRUE(at::equal(all.flat_rounded(), all.flat_values().to(at::kBFloat16)));
}

// The scale is a power of two, so that it changes no bit of the gradients.
TEST_P(TrainStepTest, ScalingTheLossChangesNoUpdate) {
  TinyRun plain(with_batch(4), device()), scaled(with_batch(4), device(), with_scaler());
  for (TinyRun* run : {&plain, &scaled}) {
    for (int update = 0; update < 2; ++update) run_update(run->step, run->loader, 2, 1e-3, never);
  }
  const auto expected = values(plain.model), got = values(scaled.model);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(expected[i], got[i])) << plain.model.parameters().rows()[i].name;
}

TEST_P(TrainStepTest, AnOverflowOfTheScaledGradientsLowersTheScaleAndSkips) {
  TinyRun run(with_batch(4), device(), with_scaler());
  // With such weights and such a scale the gradients overflow.
  run.model.parameters().flat_values().detach().mul_(100);
  run.scaler.scale_value().fill_(std::numeric_limits<float>::max());
  const auto before = values(run.model);
  run_update(run.step, run.loader, 1, 1e-3, never);
  EXPECT_EQ(run.step.skipped().item<float>(), 1.0f);
  EXPECT_EQ(run.scaler.scale_value().item<float>(), std::numeric_limits<float>::max() / 2);
  EXPECT_EQ(run.optimizer.state().step_count.item<float>(), 0.0f);
  const auto after = values(run.model);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
}

INSTANTIATE_ON_DEVICES(TrainStepTest);

// Hundreds of signals in the middle of forward and backward, as `kill -USR1` and Ctrl-C send them.
TEST(TrainStep, SignalsDuringTheComputationChangeNothing) {
  const auto final_loss = [] {
    at::set_num_threads(1);  // a forked child has none of the threads that its parent may have started
    TinyRun run(with_batch(4));
    double loss = 0;
    for (int step = 0; step < 100; ++step)
      loss = (run_update(run.step, run.loader, 1, 1e-3, never), run.step.loss().item<double>());
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
