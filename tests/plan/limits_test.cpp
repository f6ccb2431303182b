#include "gpt/plan/limits.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "gpt/model/recompute.h"
#include "gpt/ops/part.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

device::Precision computing_in(Dtype dtype, bool end_to_end = false) {
  device::Precision precision;
  precision.dtype = dtype, precision.end_to_end = end_to_end;
  return precision;
}

device::Precision float32() { return computing_in(Dtype::float32); }
device::Precision autocast() { return computing_in(Dtype::bfloat16); }
device::Precision end_to_end() { return computing_in(Dtype::bfloat16, /*end_to_end=*/true); }

ModelConfig tiny() {
  ModelConfig model = gpt2(/*layers=*/2, /*heads=*/2, /*width=*/32);
  model.block_size = 16, model.bias = false, model.vocab_size = 70;
  return model;
}

std::map<std::string, Work> step_of(const ModelConfig& model, const TrainingConfig& training,
                                    const device::Precision& precision, double tokens) {
  std::map<std::string, Work> result;
  for (const PartWork& part : work_of_step(model, training, precision, tokens)) result[part.name] = part.work;
  return result;
}

TEST(MachineSpeed, TheLongerOfComputingAndMovingIsTheLeastTime) {
  const MachineSpeed speed{.flops = 1e12, .bytes_per_second = 1e9};
  EXPECT_DOUBLE_EQ(speed.least_seconds({.flops = 2e12, .bytes = 1e9}), 2);
  EXPECT_DOUBLE_EQ(speed.least_seconds({.flops = 1e12, .bytes = 3e9}), 3);
  EXPECT_DOUBLE_EQ(least_seconds({{"one", {2e12, 1e9}}, {"other", {1e12, 3e9}}}, speed), 5);
}

// 32 tokens of width 32 in two blocks, counted by hand in values.
TEST(WorkOfAStep, EveryOperandIsReadAndEveryResultWrittenOnce) {
  constexpr double kStream = 32 * 32, kHidden = 32 * 128, kBlock = 12 * 32 * 32, kHead = 128 * 32;
  const auto work = step_of(tiny(), {}, float32(), 32);
  ASSERT_EQ(work.size(), ops::part::kAll.size());
  EXPECT_EQ(work.at(ops::part::kProducts).flops, 6 * 32 * 2 * kBlock);
  const double inputs_and_results = (1 + 3) * kStream + (1 + 1) * kStream + 2 * (kStream + kHidden);
  EXPECT_EQ(work.at(ops::part::kProducts).bytes, 4 * 3 * 2 * (kBlock + inputs_and_results));
  EXPECT_EQ(work.at(ops::part::kAttention).flops, 2 * 3.5 * 2 * kStream * 16);
  EXPECT_EQ(work.at(ops::part::kAttention).bytes, 4 * 2 * 12 * kStream);
  EXPECT_EQ(work.at(ops::part::kNorm).bytes, 4 * (4 * 8 + 6) * kStream);
  EXPECT_EQ(work.at(ops::part::kActivation).bytes, 4 * 2 * 5 * kHidden);
  EXPECT_EQ(work.at(ops::part::kHead).flops, 6 * 32 * kHead);
  EXPECT_EQ(work.at(ops::part::kHead).bytes, 4 * (3 * kHead + 3 * kStream) + 8 * 32);
  const double parameters = 2 * kBlock + kHead + 16 * 32 + 5 * 32;  // and positions and norms
  EXPECT_EQ(work.at(ops::part::kOptimizer).bytes, parameters * (4 + 4 + 4 + 4 + 16));
}

TEST(WorkOfAStep, WindowsHideScores) {
  ModelConfig model = tiny();
  const double full = step_of(model, {}, float32(), 32).at(ops::part::kAttention).flops;
  model.attention_window = 4, model.window_pattern = "S";  // the first of two layers
  const Work work = step_of(model, {}, float32(), 32).at(ops::part::kAttention);
  EXPECT_DOUBLE_EQ(work.flops, full * (58.0 / 136 + 1) / 2);
  EXPECT_EQ(work.bytes, step_of(tiny(), {}, float32(), 32).at(ops::part::kAttention).bytes);
}

TEST(WorkOfAStep, BlocksThatNobodyChoosesAreNotCounted) {
  ModelConfig model = tiny();
  model.block_size = 256;
  const double full = step_of(model, {}, float32(), 256).at(ops::part::kAttention).flops;
  model.attention = AttentionForm::blocks, model.attention_top_blocks = 1;
  // Four blocks with their own scores, and three of whose queries each chooses one.
  const double seen = 4 * 64 * 65 / 2.0 + 3 * 64 * 64;
  EXPECT_DOUBLE_EQ(step_of(model, {}, float32(), 256).at(ops::part::kAttention).flops, full * seen / (256 * 257 / 2.0));
}

TEST(WorkOfAStep, IsThatOfTheRunsTypes) {
  TrainingConfig training;
  const auto wide = step_of(tiny(), training, float32(), 32), narrow = step_of(tiny(), training, end_to_end(), 32),
             mixed = step_of(tiny(), training, autocast(), 32);
  EXPECT_EQ(narrow.at(ops::part::kNorm).bytes, wide.at(ops::part::kNorm).bytes / 2);
  EXPECT_EQ(narrow.at(ops::part::kProducts).bytes, wide.at(ops::part::kProducts).bytes / 2);
  EXPECT_EQ(mixed.at(ops::part::kNorm).bytes, wide.at(ops::part::kNorm).bytes)
      << "autocast has a residual stream of float32";
  EXPECT_EQ(mixed.at(ops::part::kAttention).bytes, narrow.at(ops::part::kAttention).bytes);
  const double parameters = wide.at(ops::part::kOptimizer).bytes / 32;
  EXPECT_EQ(narrow.at(ops::part::kOptimizer).bytes, parameters * (2 + 2 + 8 + 2 + 16)) << "16-bit gradients and copies";
  training.optimizer.state_dtype = StateDtype::bfloat16, training.precision.master_weights = false;
  EXPECT_EQ(step_of(tiny(), training, end_to_end(), 32).at(ops::part::kOptimizer).bytes, parameters * (2 + 2 + 4 + 8));
}

// Two blocks with four matrices of 32 by 32, and two of 128 by 32.
TEST(WorkOfAStep, MuonMultipliesItsMatricesAndHasOneMomentum) {
  TrainingConfig training;
  const double before = step_of(tiny(), training, float32(), 32).at(ops::part::kOptimizer).bytes;
  training.optimizer.kind = OptimizerKind::muon;
  const Work update = step_of(tiny(), training, float32(), 32).at(ops::part::kOptimizer);
  EXPECT_EQ(update.flops, 2 * (4 * (3 + 17) * 32 * 32 * 32 + 2 * (3 * 32 * 32 * 128 + 17 * 32 * 32 * 32)));
  EXPECT_EQ(update.bytes, before) << "for each value, 8 bytes of a moment less and 8 of directions more";
  training.tuning.freeze = {"h"};
  EXPECT_EQ(step_of(tiny(), training, float32(), 32).at(ops::part::kOptimizer).flops, 0);
}

TEST(WorkOfAStep, WhatIsComputedAgainCounts) {
  TrainingConfig training;
  const auto once = step_of(tiny(), training, float32(), 32);
  const auto with = [&](GradientCheckpointing level) {
    training.execution.gradient_checkpointing = level;
    return step_of(tiny(), training, float32(), 32);
  };
  EXPECT_EQ(with(GradientCheckpointing::activation).at(ops::part::kActivation).bytes,
            once.at(ops::part::kActivation).bytes * 7 / 5);
  EXPECT_EQ(with(GradientCheckpointing::activation).at(ops::part::kNorm).bytes, once.at(ops::part::kNorm).bytes);
  EXPECT_GT(with(GradientCheckpointing::norm).at(ops::part::kNorm).bytes, once.at(ops::part::kNorm).bytes);
  EXPECT_EQ(with(GradientCheckpointing::selective).at(ops::part::kAttention).flops,
            once.at(ops::part::kAttention).flops);
  const auto all = with(GradientCheckpointing::block);
  EXPECT_EQ(all.at(ops::part::kAttention).flops, once.at(ops::part::kAttention).flops * 4.5 / 3.5);
  EXPECT_EQ(all.at(ops::part::kProducts).flops,
            2 * 32 * model::weights_multiplied(tiny(), GradientCheckpointing::block));
}

TEST(WorkOfAStep, MicroStepsReadTheWeightsAgain) {
  TrainingConfig training;
  training.gradient_accumulation_steps = 2;
  const auto one = step_of(tiny(), {}, float32(), 32), two = step_of(tiny(), training, float32(), 32);
  EXPECT_EQ(two.at(ops::part::kProducts).flops, one.at(ops::part::kProducts).flops);
  EXPECT_EQ(two.at(ops::part::kProducts).bytes - one.at(ops::part::kProducts).bytes, 4 * 3 * 2 * 12 * 32 * 32);
  EXPECT_EQ(two.at(ops::part::kOptimizer).bytes, one.at(ops::part::kOptimizer).bytes);
}

// What an H100 reached in its products and its copies, and the times of the parts that gpt-bench profile measured there.
TEST(WorkOfAStep, IsNoMoreThanAnH100Did) {
  const MachineSpeed h100{.flops = 782e12, .bytes_per_second = 3.0e12};
  const std::map<std::string, double> measured_ms{{ops::part::kProducts, 50.62}, {ops::part::kAttention, 21.64},
                                                  {ops::part::kNorm, 10.61},     {ops::part::kActivation, 8.25},
                                                  {ops::part::kHead, 26.24},     {ops::part::kOptimizer, 1.28}};
  const auto parts = work_of_step(gpt2_small(), {}, end_to_end(), 64 * 1024);
  for (const PartWork& part : parts) {
    if (!measured_ms.contains(part.name)) continue;
    EXPECT_LT(1000 * h100.least_seconds(part.work), measured_ms.at(part.name)) << part.name;
  }
  EXPECT_NEAR(1000 * least_seconds(parts, h100), 84, 2);
}

TEST(MachineSpeed, KeepsTheFasterOfEach) {
  MachineSpeed speed{.flops = 2e12, .bytes_per_second = 1e10};
  speed.keep_faster({.flops = 1e12, .bytes_per_second = 3e10});
  EXPECT_EQ(speed.flops, 2e12);
  EXPECT_EQ(speed.bytes_per_second, 3e10);
}

TEST(MachineSpeed, IsKnownOnceItWasMeasuredAndKeptWhereThatFails) {
  MachineSpeed speed;
  measure_again(speed, at::kCPU, at::kBool);  // of which there is no product to measure
  EXPECT_FALSE(speed.is_known());
  measure_again(speed, at::kCPU, at::kFloat);
  EXPECT_TRUE(speed.is_known());
  const double flops = speed.flops;
  measure_again(speed, at::kCPU, at::kBool);
  EXPECT_EQ(speed.flops, flops);
}

TEST(MachineSpeed, IsMeasuredWithoutDrawingFromTheRunsRandomState) {
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const MachineSpeed speed = measure_machine(at::kCPU, type);
    EXPECT_GT(speed.flops, 1e8);
    EXPECT_GT(speed.bytes_per_second, 1e8);
  }
  EXPECT_TRUE(before.equal(generator.get_state()));
}

}  // namespace
}  // namespace gpt::plan
