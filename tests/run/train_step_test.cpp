// The update itself: accumulation is the full batch, a bad batch changes nothing, and recorded it learns what it learns eagerly.
#include "gpt/run/train_step.h"

#include <ATen/Parallel.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <ostream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/child_process.h"
#include "gpt/core/process.h"
#include "gpt/device/graph.h"
#include "gpt/device/random_state.h"
#include "gpt/optim/adamw.h"
#include "support/counted_graphs.h"
#include "support/device_cases.h"
#include "support/no_synchronization.h"
#include "support/restore_context.h"
#include "support/tolerance.h"

namespace gpt::run {
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

data::Tokens some_tokens(int64_t count) {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * i + 7 * i) % kVocab);
  return data::Tokens::from_ids(ids, kVocab);
}

struct TinyRun {
  explicit TinyRun(const TrainingConfig& config, at::Device device = at::kCPU, const device::Precision& precision = {},
                   double dropout = 0, bool is_recorded = false, uint64_t dropout_seed = 0)
      : model(tiny_model(dropout), device, 1, {.compute = precision.weight_type()}),
        optimizer(model.parameters(), {}),
        scaler(precision.grad_scaler, device),
        // 11 samples: (11 + 1) blocks.
        loader(some_tokens(12 * kBlock), DataConfig{}, config.batch_size, kBlock, 5, device),
        step({model, optimizer, scaler}, {precision, dropout_seed}, config,
             is_recorded ? test::counting_recorder(model, replays) : Recorder()) {
    model.train(true);
  }
  int64_t replays = 0;  // how often recorded parts of the step were replayed
  model::GPT model;
  optim::AdamW optimizer;
  optim::GradScaler scaler;
  batches::DataLoader loader;
  TrainStep step;
};

class TrainStepTest : public DeviceTest {};

bool never() { return false; }

device::Precision autocast() {
  device::Precision precision;
  precision.dtype = Dtype::bfloat16;
  return precision;
}

device::Precision end_to_end() {
  device::Precision precision;
  precision.dtype = Dtype::bfloat16;
  precision.end_to_end = true;
  return precision;
}

device::Precision with_scaler() {
  device::Precision precision;
  precision.grad_scaler = true;
  return precision;
}

device::Precision float16() {
  device::Precision precision = with_scaler();
  precision.dtype = Dtype::float16;
  return precision;
}

TrainingConfig with_batch(int64_t batch_size) {
  TrainingConfig config;
  config.batch_size = batch_size;
  return config;
}

std::vector<at::Tensor> values(const model::GPT& model) {
  std::vector<at::Tensor> copies;
  for (const auto& [name, value] : model.parameters().values()) copies.push_back(value.detach().clone());
  return copies;
}

// With dropout too, whose masks do not depend on the cut; on a GPU attention's dropout is LibTorch's.
TEST_P(TrainStepTest, UnevenMicroBatchesEqualTheFullBatch) {
  const double dropout = device().is_cpu() ? 0.2 : 0;
  TinyRun whole(with_batch(11), device(), {}, dropout), parts(with_batch(4), device(), {}, dropout);
  ASSERT_EQ(whole.loader.samples_per_epoch(), 11);
  EXPECT_EQ(run_update(whole.step, whole.loader, 1, 1e-3, 0, never), 11 * kBlock);
  EXPECT_EQ(run_update(parts.step, parts.loader, 3, 1e-3, 0, never), 11 * kBlock);  // 4 + 4 + 3 sequences
  // Both are float32 means over the same tokens that differ only in the order of summation.
  const double eps = std::numeric_limits<float>::epsilon();
  const double loss = whole.step.loss().item<double>(), norm = whole.step.grad_norm().item<double>();
  EXPECT_NEAR(loss, parts.step.loss().item<double>(), 11 * kBlock * eps * loss);
  EXPECT_NEAR(norm, parts.step.grad_norm().item<double>(), 11 * kBlock * eps * norm);
}

TEST_P(TrainStepTest, EveryUpdateAndSeedHasMasksOfItsOwn) {
  const auto loss = [this](int64_t update, uint64_t seed) {
    device::seed_random_state(device(), 1);
    TinyRun run(with_batch(4), device(), {}, /*dropout=*/0.2, /*is_recorded=*/false, seed);
    EXPECT_TRUE(run_update(run.step, run.loader, 2, /*learning_rate=*/0, update, never));
    return run.step.loss().item<double>();
  };
  EXPECT_EQ(loss(3, 5), loss(3, 5));
  EXPECT_NE(loss(3, 5), loss(4, 5));
  EXPECT_NE(loss(3, 5), loss(3, 6));
}

// The second update overwrites the gradients of the first: nothing of them is left.
TEST_P(TrainStepTest, UpdatesStartWithoutTheGradientsOfTheLast) {
  TinyRun once(with_batch(11), device()), twice(with_batch(11), device());
  run_update(twice.step, twice.loader, 1, /*learning_rate=*/0, 0, never);
  twice.loader.seek({});
  run_update(once.step, once.loader, 1, 0, 0, never);
  run_update(twice.step, twice.loader, 1, 0, 0, never);
  EXPECT_EQ(once.step.grad_norm().item<float>(), twice.step.grad_norm().item<float>());
}

TEST_P(TrainStepTest, NonFiniteLossChangesNothing) {
  TinyRun run(with_batch(4), device());
  run_update(run.step, run.loader, 1, 1e-3, 0, never);
  const auto before = values(run.model);
  const at::Tensor last = run.model.parameters().values().back().second.detach();
  last.view({-1})[0].fill_(std::numeric_limits<float>::quiet_NaN());
  run_update(run.step, run.loader, 1, 1e-3, 0, never);
  EXPECT_EQ(run.step.skipped().item<float>(), 1.0f);
  EXPECT_EQ(run.optimizer.state().step_count.item<float>(), 1.0f);
  last.copy_(before.back());
  const auto after = values(run.model);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(before[i], after[i])) << run.model.parameters().rows()[i].name;
  run_update(run.step, run.loader, 1, 1e-3, 0, never);
  EXPECT_EQ(run.step.skipped().item<float>(), 0.0f);
  EXPECT_EQ(run.optimizer.state().step_count.item<float>(), 2.0f);
}

TEST_P(TrainStepTest, StopBetweenMicroBatchesLeavesTheParametersAlone) {
  TinyRun run(with_batch(4), device());
  const auto before = values(run.model);
  EXPECT_FALSE(run_update(run.step, run.loader, 3, 1e-3, 0, [] { return true; }));
  const auto after = values(run.model);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
  EXPECT_THROW((void)run.model.parameters().flat_gradients(), c10::Error)
      << "half an update's gradients are not for use";
}

TEST_P(TrainStepTest, AnAbandonedUpdateLeavesNoTraceInTheNext) {
  TinyRun undisturbed(with_batch(4), device()), disturbed(with_batch(4), device());
  const at::Tensor random = device::random_state(device());
  EXPECT_TRUE(run_update(undisturbed.step, undisturbed.loader, 3, 1e-3, 0, never));
  device::set_random_state(device(), random);
  EXPECT_FALSE(run_update(disturbed.step, disturbed.loader, 3, 1e-3, 0, [] { return true; }));
  device::set_random_state(device(), random);
  disturbed.loader.seek({});
  EXPECT_TRUE(run_update(disturbed.step, disturbed.loader, 3, 1e-3, 0, never));
  const auto expected = values(undisturbed.model), got = values(disturbed.model);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(expected[i], got[i])) << disturbed.model.parameters().rows()[i].name;
}

TEST_P(TrainStepTest, SixteenBitsGiveTheSameWithinTheirRounding) {
  std::vector<device::Precision> precisions{autocast(), end_to_end()};
  if (device().is_cuda()) precisions.push_back(float16());
  for (const device::Precision& precision : precisions) {
    const at::ScalarType type = precision.compute_type();
    TinyRun exact(with_batch(4), device()), rounded(with_batch(4), device(), precision);
    for (TinyRun* run : {&exact, &rounded}) run_update(run->step, run->loader, 2, 1e-3, 0, never);
    const double loss = exact.step.loss().item<double>(), norm = exact.step.grad_norm().item<double>();
    const double rounded_loss = rounded.step.loss().item<double>(),
                 rounded_norm = rounded.step.grad_norm().item<double>();
    EXPECT_FALSE(rounded_loss == loss && rounded_norm == norm) << "nothing was rounded";  // one may agree by chance
    EXPECT_NEAR(rounded_loss, loss, test::tolerance(type, 4 * 16, loss));
    EXPECT_NEAR(rounded_norm, norm, test::tolerance(type, 8 * 16, norm));
  }
}

// The weights of a normalization begin at 1, where bfloat16 has steps of 2^-8: updates smaller than half of that add up in float32.
TEST_P(TrainStepTest, EndToEndLearnsFromUpdatesThatRoundingWouldLose) {
  constexpr double kRate = 1e-5;
  constexpr int kUpdates = 12;
  TinyRun run(with_batch(4), device(), end_to_end());
  for (int update = 0; update < kUpdates; ++update) run_update(run.step, run.loader, 2, kRate, update, never);
  const parameters::Parameter norm = run.model.parameters().weight(layout::ParameterRole::mlp_norm, 0);
  EXPECT_GT(at::max(at::abs(norm.value().detach() - 1)).item<double>(), kUpdates * kRate / 2);
  EXPECT_TRUE(norm.compute_value().eq(1).all().item<bool>());
  const parameters::Parameters& all = run.model.parameters();
  EXPECT_TRUE(at::equal(all.flat_rounded(), all.flat_values().to(at::kBFloat16)));
}

// The scale is a power of two, so that it changes no bit of the gradients.
TEST_P(TrainStepTest, ScalingTheLossChangesNoUpdate) {
  TinyRun plain(with_batch(4), device()), scaled(with_batch(4), device(), with_scaler());
  for (TinyRun* run : {&plain, &scaled}) {
    for (int update = 0; update < 2; ++update) run_update(run->step, run->loader, 2, 1e-3, update, never);
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
  run_update(run.step, run.loader, 1, 1e-3, 0, never);
  EXPECT_EQ(run.step.skipped().item<float>(), 1.0f);
  EXPECT_EQ(run.scaler.scale_value().item<float>(), std::numeric_limits<float>::max() / 2);
  EXPECT_EQ(run.optimizer.state().step_count.item<float>(), 0.0f);
  const auto after = values(run.model);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
}

INSTANTIATE_ON_DEVICES(TrainStepTest);

struct StepCase {
  const char* name;
  Dtype dtype = Dtype::float32;
  bool end_to_end = false, grad_scaler = false;
  double dropout = 0;

  device::Precision precision() const {
    device::Precision precision;
    precision.dtype = dtype, precision.end_to_end = end_to_end, precision.grad_scaler = grad_scaler;
    return precision;
  }
};

void PrintTo(const StepCase& c, std::ostream* out) { *out << c.name; }

constexpr StepCase kStepCases[] = {
    {.name = "float32"},
    {.name = "float32_dropout", .dropout = 0.1},
    {.name = "float32_scaled_dropout", .grad_scaler = true, .dropout = 0.1},
    {.name = "autocast", .dtype = Dtype::bfloat16},
    {.name = "autocast_dropout", .dtype = Dtype::bfloat16, .dropout = 0.1},
    {.name = "end_to_end", .dtype = Dtype::bfloat16, .end_to_end = true},
    {.name = "end_to_end_dropout", .dtype = Dtype::bfloat16, .end_to_end = true, .dropout = 0.1},
    {.name = "float16", .dtype = Dtype::float16, .grad_scaler = true},
    {.name = "float16_dropout", .dtype = Dtype::float16, .grad_scaler = true, .dropout = 0.1}};

// What a run of several updates gave, of three micro-batches each, the third of which is smaller.
struct Trace {
  std::vector<float> losses;
  std::vector<parameters::NamedTensors> gradients;  // the gradients of every update
  std::vector<at::Tensor> weights;                  // after the last
};

class StepOfEveryPrecision : public testing::TestWithParam<std::tuple<DeviceCase, StepCase>> {
 protected:
  static constexpr int kUpdates = Recorder::kRunsBefore + 4;

  void SetUp() override {
    GPT_SKIP_WITHOUT(std::get<0>(GetParam()));
    if (what().dtype == Dtype::float16 && device().is_cpu()) GTEST_SKIP() << "float16 is refused on a CPU";
    device::use_recordable_stream(device());
  }
  at::Device device() const { return std::get<0>(GetParam()).device; }
  const StepCase& what() const { return std::get<1>(GetParam()); }

  // The learning rates are 0, 1, 2, ... times `rate`, and the weight decay is 0, 1, 2, ... times its configured value.
  Trace train(double rate, bool is_recorded) const {
    device::seed_random_state(device(), 3);
    TinyRun run(with_batch(4), device(), what().precision(), what().dropout, is_recorded);
    Trace trace;
    for (int update = 0; update < kUpdates; ++update) {
      run.step.abandon();  // as after a stop
      EXPECT_TRUE(run_update(run.step, run.loader, 3, {rate * update, static_cast<double>(update)}, update, never));
      trace.losses.push_back(run.step.loss().item<float>());
      trace.gradients.push_back(run.model.parameters().gradients());
      for (auto& [name, gradient] : trace.gradients.back()) gradient = gradient.clone();
    }
    trace.weights = values(run.model);
    EXPECT_EQ(run.step.is_recorded(), is_recorded);
    // The first micro-batch, the second, the third and the update.
    EXPECT_EQ(run.replays, is_recorded ? 4 * (kUpdates - Recorder::kRunsBefore) : 0);
    return trace;
  }

  RestoreContext restore_;
};

// What is replayed reads the batch and the learning rate of the time and draws new random numbers.
TEST_P(StepOfEveryPrecision, RecordedIsTheEagerOneToTheBitWhereItIsDeterministic) {
  device::apply_precision(what().precision(), /*deterministic=*/true);
  const Trace eager = train(1e-3, false), recorded = train(1e-3, true);
  EXPECT_EQ(recorded.losses, eager.losses);
  for (int update = 0; update < kUpdates; ++update) {
    for (size_t i = 0; i < eager.gradients[update].size(); ++i) {
      const auto& [name, gradient] = eager.gradients[update][i];
      EXPECT_TRUE(recorded.gradients[update][i].second.equal(gradient)) << name << ", update " << update;
    }
  }
  for (size_t i = 0; i < eager.weights.size(); ++i) EXPECT_TRUE(recorded.weights[i].equal(eager.weights[i])) << i;
}

// Elsewhere the order of the sums of some backward passes is not fixed. With the same weights all the way the loss, which has none of
// them, is the same.
TEST_P(StepOfEveryPrecision, RecordedHasTheEagerLossAndItsGradientsWithinTheirRounding) {
  device::apply_precision(what().precision(), /*deterministic=*/false);
  const Trace eager = train(/*rate=*/0, false), recorded = train(0, true);
  EXPECT_EQ(recorded.losses, eager.losses);
  // A layer hands a gradient back through eight operators, whose results 16 bits round; float32 is rounded in every sum. Both runs
  // round.
  const ModelConfig model = tiny_model(0);
  const at::ScalarType type = what().precision().compute_type();
  const int64_t of_layer =
      type == at::kFloat ? 5 * model.n_embd + model.head_dim() + model.block_size + model.hidden() : 8;
  for (int update = 0; update < kUpdates; ++update) {
    for (size_t i = 0; i < eager.gradients[update].size(); ++i) {
      const auto& [name, gradient] = eager.gradients[update][i];
      const double norm = gradient.norm().item<double>();
      EXPECT_LE((recorded.gradients[update][i].second - gradient).norm().item<double>(),
                test::tolerance(type, 2 * model.n_layer * of_layer, norm))
          << name << ", update " << update;
      EXPECT_GT(norm, 0) << name;
    }
  }
}

// The host gets ahead of the device: neither an update nor the data for it waits, once buffers and kernels have been found; nor does one
// whose norms are measured by layer, until somebody reads them.
TEST_P(StepOfEveryPrecision, NeverWaitsForTheDevice) {
  for (const bool is_recorded : {false, true}) {
    TrainingConfig config = with_batch(4);
    config.cadence.log_norms = true;
    TinyRun run(config, device(), what().precision(), what().dropout, is_recorded);
    run.step.measure_norms(true);
    const auto update = [&run] { return run_update(run.step, run.loader, 3, 1e-3, 0, never); };
    for (int warm_up = 0; warm_up <= Recorder::kRunsBefore; ++warm_up) update();
    {
      const test::NoSynchronization guard(device());
      EXPECT_NO_THROW(update());
      EXPECT_NO_THROW(update());
    }
    EXPECT_TRUE(std::isfinite(run.step.loss().item<float>()));
    EXPECT_TRUE(std::isfinite(run.step.norms()->update[1]));
    EXPECT_EQ(run.replays, is_recorded ? 4 * 3 : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, StepOfEveryPrecision,
                         testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(kStepCases)),
                         [](const auto& test) {
                           return std::string(std::get<1>(test.param).name) + "_" + std::get<0>(test.param).name;
                         });

#ifdef GPT_CUDA
TEST(NoSynchronization, TurnsAWaitIntoAnError) {
  {
    const test::NoSynchronization guard(at::Device(at::kCUDA, 0));
    EXPECT_THROW(c10::cuda::warn_or_error_on_sync(), c10::Error);  // what LibTorch calls before it waits
  }
  EXPECT_NO_THROW(c10::cuda::warn_or_error_on_sync());
}
#endif

// Hundreds of signals in the middle of forward and backward, as `kill -USR1` and Ctrl-C send them.
TEST(TrainStep, SignalsDuringTheComputationChangeNothing) {
  const auto final_loss = [] {
    at::set_num_threads(1);  // a forked child has none of the threads that its parent may have started
    TinyRun run(with_batch(4));
    double loss = 0;
    for (int step = 0; step < 100; ++step)
      loss = (run_update(run.step, run.loader, 1, 1e-3, 0, never), run.step.loss().item<double>());
    return loss;
  };
  const ChildResult quiet = run_child([&] { return std::fprintf(stderr, "%.17g", final_loss()) < 0; });
  const ChildResult noisy = run_child([&] {
    process::watch_signals();
    std::atomic<bool> done{false};
    std::thread sender([&done] {
      do kill(getpid(), SIGUSR1), usleep(200);
      while (!done);  // at least one, however late this thread begins
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
}  // namespace gpt::run
