// A run that is saved, read back and continued is the run that never stopped, bit for bit, on every device and in every
// precision that it has.
#include "gpt/run/state.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support/captured_log.h"
#include "support/device_cases.h"
#include "support/restore_context.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

constexpr auto kNone = GradientCheckpointing::none, kNorm = GradientCheckpointing::norm,
               kSelective = GradientCheckpointing::selective, kByBlock = GradientCheckpointing::block;

struct ResumeCase {
  const char* name;
  Dtype dtype;
  GradientCheckpointing gradient_checkpointing = kNone;
  AmpMode amp_mode = AmpMode::autocast;
  OptimizerConfig optimizer = {};
  bool master_weights = true;
  GradientDtype gradient_dtype = GradientDtype::float32;
  std::vector<std::string> freeze = {};
  int64_t lora_rank = 0;
  BaseType lora_base = BaseType::automatic;
  double lora_dropout = 0;
  std::vector<std::string> lora_also_train = {};
};

class ResumeTest : public testing::TestWithParam<std::tuple<DeviceCase, ResumeCase>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(std::get<0>(GetParam()));
    path_ = testing::TempDir() + "resume_" + std::to_string(getpid()) + ".pt";
    at::set_num_threads(1);  // on a busy machine threads meet more slowly than this model computes
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_;
  RestoreContext restore_;
};

TEST_P(ResumeTest, IsBitForBitTheRunThatNeverStopped) {
  const auto& [where, what] = GetParam();
  const device::DeviceInfo info = device::describe_device(where.device);
  if (what.lora_base != BaseType::automatic && !where.device.is_cpu()) GTEST_SKIP() << "it is refused on a GPU";
  if (what.dtype == Dtype::float16 && where.device.is_cpu()) GTEST_SKIP() << "float16 is refused on a CPU";
  const PrecisionConfig asked{what.dtype != Dtype::float32, what.dtype, what.amp_mode, what.master_weights,
                              what.gradient_dtype};
  const device::Precision precision = device::resolve_precision(asked, info);
  device::apply_precision(precision, /*deterministic=*/true);
  const data::Corpus corpus = some_corpus();
  Config config = tiny_config(corpus);
  config.training.execution.gradient_checkpointing = what.gradient_checkpointing;
  config.training.optimizer = what.optimizer;
  config.training.precision = asked;
  config.training.tuning.freeze = what.freeze;
  config.training.tuning.lora.rank = what.lora_rank;
  config.training.tuning.lora.base = what.lora_base, config.training.tuning.lora.dropout = what.lora_dropout,
  config.training.tuning.lora.also_train = what.lora_also_train;

  TinyRun whole(config, corpus, where.device, precision);
  whole.train_to(kStop);
  checkpoint::save_checkpoint(path_, whole.state.capture());
  const std::vector<double> losses = whole.train_to(kUpdates);
  const checkpoint::Checkpoint expected = whole.state.capture();

  const StartingPoint start{.checkpoint = checkpoint::load_checkpoint(path_), .path = path_};
  TinyRun resumed(config, corpus, where.device, precision, &start);
  EXPECT_EQ(resumed.state.model.device(), whole.state.model.device());
  EXPECT_EQ(resumed.train_to(kUpdates), losses);
  const checkpoint::Checkpoint found = resumed.state.capture();
  expect_same_weights_and_moments(found, expected);
  EXPECT_EQ(found.scaler_scale.defined(), precision.grad_scaler);
  if (precision.grad_scaler) { EXPECT_TRUE(found.scaler_growth_tracker.equal(expected.scaler_growth_tracker)); }
  for (const auto& [name, state] : expected.rng) EXPECT_TRUE(found.rng.at(name).equal(state)) << name;
  EXPECT_EQ(found.data_sample, expected.data_sample);
}

INSTANTIATE_TEST_SUITE_P(
    Devices, ResumeTest,
    testing::Combine(
        testing::ValuesIn(kDevices),
        testing::Values(
            ResumeCase{"float32", Dtype::float32, kNone},
            ResumeCase{
                .name = "state_in_8_bits", .dtype = Dtype::float32, .optimizer = {.state_dtype = StateDtype::int8}},
            ResumeCase{.name = "state_in_8_bits_but_embeddings",
                       .dtype = Dtype::float32,
                       .optimizer = {.state_dtype = StateDtype::int8, .float32_embedding_state = true}},
            ResumeCase{.name = "state_in_bfloat16",
                       .dtype = Dtype::float32,
                       .optimizer = {.state_dtype = StateDtype::bfloat16}},
            ResumeCase{.name = "muon",
                       .dtype = Dtype::float32,
                       .gradient_checkpointing = kByBlock,
                       .optimizer = {.kind = OptimizerKind::muon}},
            ResumeCase{.name = "normuon_in_8_bits",
                       .dtype = Dtype::float32,
                       .optimizer = {.kind = OptimizerKind::normuon,
                                     .cautious_weight_decay = true,
                                     .state_dtype = StateDtype::int8},
                       .freeze = {"wte", "h.0.attn", "h.1.mlp.w1"}},
            ResumeCase{.name = "muon_of_16_bits_alone",
                       .dtype = Dtype::bfloat16,
                       .amp_mode = AmpMode::end_to_end,
                       .optimizer = {.kind = OptimizerKind::muon, .state_dtype = StateDtype::bfloat16},
                       .master_weights = false,
                       .gradient_dtype = GradientDtype::bfloat16},
            ResumeCase{.name = "muon_in_float16", .dtype = Dtype::float16, .optimizer = {.kind = OptimizerKind::muon}},
            ResumeCase{"float32_recomputed", Dtype::float32, kByBlock}, ResumeCase{"bfloat16", Dtype::bfloat16, kNone},
            ResumeCase{"bfloat16_recomputed", Dtype::bfloat16, kSelective},
            ResumeCase{"end_to_end", Dtype::bfloat16, kNone, AmpMode::end_to_end},
            ResumeCase{"end_to_end_recomputed", Dtype::bfloat16, kNorm, AmpMode::end_to_end},
            ResumeCase{.name = "sixteen_bits_alone",
                       .dtype = Dtype::bfloat16,
                       .amp_mode = AmpMode::end_to_end,
                       .optimizer = {.state_dtype = StateDtype::int8},
                       .master_weights = false,
                       .gradient_dtype = GradientDtype::bfloat16},
            ResumeCase{.name = "frozen_end_to_end",
                       .dtype = Dtype::bfloat16,
                       .gradient_checkpointing = kSelective,
                       .amp_mode = AmpMode::end_to_end,
                       .optimizer = {.state_dtype = StateDtype::int8},
                       .freeze = {"wte", "h.0", "h.1.mlp"}},
            ResumeCase{.name = "frozen_embedding", .dtype = Dtype::float32, .freeze = {"wte"}},
            ResumeCase{.name = "adapters", .dtype = Dtype::float32, .gradient_checkpointing = kNorm, .lora_rank = 2},
            ResumeCase{.name = "adapters_end_to_end",
                       .dtype = Dtype::bfloat16,
                       .amp_mode = AmpMode::end_to_end,
                       .optimizer = {.state_dtype = StateDtype::int8},
                       .lora_rank = 4},
            ResumeCase{.name = "adapters_of_int4",
                       .dtype = Dtype::float32,
                       .lora_rank = 2,
                       .lora_base = BaseType::int4,
                       .lora_dropout = 0.2},
            ResumeCase{.name = "adapters_of_int8_in_16_bits",
                       .dtype = Dtype::bfloat16,
                       .gradient_checkpointing = kNorm,
                       .amp_mode = AmpMode::end_to_end,
                       .lora_rank = 2,
                       .lora_base = BaseType::int8,
                       .lora_dropout = 0.2},
            ResumeCase{.name = "adapters_and_what_is_trained_whole",
                       .dtype = Dtype::bfloat16,
                       .amp_mode = AmpMode::end_to_end,
                       .lora_rank = 2,
                       .lora_base = BaseType::int4,
                       .lora_also_train = {"embeddings", "norms"}},
            ResumeCase{"float16", Dtype::float16, kNone})),
    [](const auto& test) { return std::string(std::get<1>(test.param).name) + "_" + std::get<0>(test.param).name; });

class GoingBack : public DeviceTest {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  StartingPoint saved(const State& state) const {
    checkpoint::save_checkpoint(path_, state.capture());
    return {.checkpoint = checkpoint::load_checkpoint(path_), .path = path_};
  }

  const std::string path_ = testing::TempDir() + "going_back_" + std::to_string(getpid()) + ".pt";
};

// In the memory that a recorded step knows; and then it goes on with new samples and masks.
TEST_P(GoingBack, PutsWeightsAndMomentsBackAndNothingElse) {
  const RestoreContext restore;
  at::set_num_threads(1);
  const PrecisionConfig asked{true, Dtype::bfloat16, AmpMode::end_to_end, true, GradientDtype::float32};
  const device::Precision precision = device::resolve_precision(asked, device::describe_device(device()));
  device::apply_precision(precision, /*deterministic=*/true);
  const data::Corpus corpus = some_corpus();
  Config config = tiny_config(corpus);
  config.training.precision = asked;
  config.training.cadence.checkpoint_interval = {kStop, Interval::Unit::steps};
  config.training.cadence.divergence.reaction = OnDivergence::rollback;

  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::normuon}) {
    config.training.optimizer.kind = kind;
    TinyRun run(config, corpus, device(), precision);
    run.train_to(kStop);
    const StartingPoint good = saved(run.state);
    run.train_to(kStop + 2);
    const checkpoint::Checkpoint before = run.state.capture();
    const auto places = [&run] {
      return std::vector{run.state.model.parameters().flat_values().const_data_ptr(),
                         run.state.optimizer->state().slots.front().second.front().second.const_data_ptr(),
                         run.state.optimizer->state().slots.back().second.back().second.const_data_ptr(),
                         run.state.watch().window.const_data_ptr()};
    };
    const auto places_before = places();
    run.state.go_back(good.checkpoint);

    const StartingPoint now = saved(run.state);
    expect_same_weights_and_moments(now.checkpoint, good.checkpoint);
    EXPECT_TRUE(now.checkpoint.spike_window.equal(good.checkpoint.spike_window));
    EXPECT_TRUE(now.checkpoint.spike_accepted.equal(good.checkpoint.spike_accepted));
    EXPECT_EQ(now.checkpoint.spike_accepted.item<int64_t>(), kStop);
    EXPECT_EQ(places(), places_before);
    EXPECT_EQ(now.checkpoint.step, kStop + 2);
    EXPECT_EQ(now.checkpoint.skipped_steps, 2);
    EXPECT_EQ(now.checkpoint.data_sample, before.data_sample);
    for (const auto& [name, state] : before.rng) EXPECT_TRUE(now.checkpoint.rng.at(name).equal(state.cpu())) << name;

    // One after the other, because on a GPU both draw attention's dropout from the process's generator, which each seeds.
    const std::vector<double> losses = run.train_to(kStop + 4);
    TinyRun resumed(config, corpus, device(), precision, &now);
    EXPECT_EQ(losses, resumed.train_to(kStop + 4));
    expect_same_weights_and_moments(run.state.capture(), resumed.state.capture());
  }
}

INSTANTIATE_ON_DEVICES(GoingBack);

TEST(State, AWindowOfAnotherLengthIsBegunAnew) {
  const data::Corpus corpus = some_corpus();
  Config config = tiny_config(corpus);
  config.training.cadence.divergence.reaction = OnDivergence::skip;
  TinyRun run(config, corpus, at::kCPU, device::Precision{});
  run.train_to(kStop);
  const StartingPoint start{.checkpoint = run.state.capture(), .path = "a"};
  EXPECT_EQ(State(config, corpus, at::kCPU, device::Precision{}, beginning_at(&start)).watch().accepted.item<int64_t>(),
            kStop);
  config.training.cadence.divergence.spike_window = 50;
  EXPECT_EQ(State(config, corpus, at::kCPU, device::Precision{}, beginning_at(&start)).watch().accepted.item<int64_t>(),
            0);
  config.training.cadence.divergence.reaction = OnDivergence::off;
  const checkpoint::Checkpoint off =
      State(config, corpus, at::kCPU, device::Precision{}, beginning_at(&start)).capture();
  EXPECT_FALSE(off.spike_window.defined());
  EXPECT_FALSE(off.spikes);
}

// Its masks came from the generator, whose state it had saved.
TEST(State, SaysThatARunOfAnOlderVersionGoesOnWithOtherMasks) {
  const data::Corpus corpus = some_corpus();
  Config config = tiny_config(corpus);
  const auto said = [&](const std::function<void(checkpoint::Checkpoint&)>& change) {
    StartingPoint start{.checkpoint = State(config, corpus, at::kCPU, device::Precision{}).capture(), .path = "a"};
    change(start.checkpoint);
    test::CapturedLog log;
    (void)State(config, corpus, at::kCPU, device::Precision{}, beginning_at(&start));
    return log.text();
  };
  const auto as_before = [](checkpoint::Checkpoint& checkpoint) { checkpoint.environment.erase("dropout masks"); };
  EXPECT_NE(said(as_before).find("dropout masks follow from its seed"), std::string::npos);
  EXPECT_EQ(said([](checkpoint::Checkpoint&) {}), "");
  config.model.dropout = 0;
  EXPECT_EQ(said(as_before), "");
  config.model.dropout = 0.2, config.training.execution.use_compile = false;
  EXPECT_EQ(said(as_before), "") << "LibTorch's masks come from the generator still";
}

}  // namespace
}  // namespace gpt::run
