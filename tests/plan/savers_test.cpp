#include "gpt/plan/savers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gpt/device/cards.h"
#include "gpt/device/precision.h"
#include "gpt/plan/estimates.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

using Savers = std::vector<Check::Saver>;

double saved_by(const Savers& savers, const std::string& setting) {
  const auto found =
      std::find_if(savers.begin(), savers.end(), [&](const auto& saver) { return saver.setting == setting; });
  return found == savers.end() ? 0 : found->bytes;
}

TEST(FindSavers, EachSavesWhatTheEstimateSaysInOrderOfGain) {
  const device::DeviceInfo card = device::find_card("RTX 4090")->describe();
  Config config = gpt2_small_run(12);
  const auto needed = [&] {
    const device::Precision precision = device::resolve_precision(config.training.precision, card);
    return estimate_memory(config.model, config.training,
                           activation_form(config.model, config.training, {}, card, precision, "flash"))
        .total();
  };
  const Savers savers = find_savers({config, card, "flash"}, /*data_bytes=*/5e6);
  EXPECT_TRUE(
      std::is_sorted(savers.begin(), savers.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; }));
  EXPECT_EQ(saved_by(savers, "data.resident: off"), 5e6);
  const double before = needed();
  config.training.batch_size = 6, config.training.gradient_accumulation_steps = 2;
  EXPECT_EQ(saved_by(savers, "training.batch_size: 6 and training.gradient_accumulation_steps: 2"), before - needed());
  config.training.batch_size = 12, config.training.gradient_accumulation_steps = 1;
  config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
  EXPECT_EQ(saved_by(savers, "training.gradient_checkpointing: block"), before - needed());
  config.training.execution.gradient_checkpointing = GradientCheckpointing::none;
  config.training.execution.swap_activations.reset();
  EXPECT_EQ(savers[0].setting, "training.swap_activations: auto");
  EXPECT_EQ(savers[0].bytes, before - needed());
}

TEST(FindSavers, WhatIsSetOrNotThereIsNotOffered) {
  Config config = gpt2_small_run(12);
  config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
  config.training.batch_size = 1;
  const Savers none = find_savers({config, {}, "flash"}, 0);
  EXPECT_EQ(saved_by(none, "training.gradient_checkpointing: block"), 0);
  for (const Check::Saver& saver : none) EXPECT_EQ(saver.setting.find("batch_size"), std::string::npos);
  EXPECT_EQ(saved_by(none, "training.use_amp: true and training.dtype: auto"), 0) << "this CPU has no bfloat16";

  config.training.precision = {.use_amp = false, .dtype = Dtype::float32};
  const device::DeviceInfo card = device::find_card("T4")->describe();
  EXPECT_GT(saved_by(find_savers({gpt2_small_run(12), device::find_card("A100")->describe(), "flash"}, 0),
                     "training.gradient_checkpointing: block"),
            0);
  config.training.batch_size = 8;
  const std::string amp = "training.use_amp: true and training.dtype: auto";
  EXPECT_EQ(saved_by(find_savers({config, card, "efficient"}, 0), amp), 0) << "the copies of the weights take more";
  config.training.execution.gradient_checkpointing = GradientCheckpointing::none;
  EXPECT_GT(saved_by(find_savers({config, card, "efficient"}, 0), amp), 0);
}

TEST(FindSavers, AGpuMayLeaveTheStateOfTheOptimizerToTheHost) {
  Config config = gpt2_small_run(12);
  const std::string offload = "training.offload_optimizer: 1";
  const device::DeviceInfo card = device::find_card("RTX 4090")->describe();
  EXPECT_EQ(saved_by(find_savers({config, card, "flash"}, 0), offload),
            estimate_memory(config.model, config.training, {.cuda = true}).optimizer);
  EXPECT_EQ(saved_by(find_savers({config, {}, "flash"}, 0), offload), 0) << "a CPU's memory is the host's";
  config.training.optimizer.offload = 1;
  EXPECT_EQ(saved_by(find_savers({config, card, "flash"}, 0), offload), 0) << "it is there already";
}

// Not what the other settings do not go with.
TEST(FindSavers, ProcessesMayDivideMoreAmongThem) {
  Config config = gpt2_small_run(12, 8);
  config.training.precision = {.use_amp = false, .dtype = Dtype::float32};
  const auto saved = [&](int64_t stage) {
    return saved_by(find_savers({config, device::find_card("A100")->describe(), "flash"}, 0),
                    fmt::format("distributed.zero: {}", stage));
  };
  EXPECT_EQ(saved(1), 0) << "of one process";
  config.distributed.processes = 4;
  const double values = 124475904, state = 0.75 * 8 * values;
  EXPECT_EQ(saved(1), state);
  EXPECT_GT(saved(2), state);
  EXPECT_GT(saved(3), saved(2) + 4 * values / 3);
  config.distributed.pipeline_parallel = 2;
  EXPECT_GT(saved(1), 0);
  EXPECT_GT(saved(2), 0);
  EXPECT_GT(saved(3), saved(2));
  config.distributed.pipeline_parallel = 1;
  config.training.tuning.freeze = {"h.0.attn"};
  EXPECT_EQ(saved(3), 0);
  EXPECT_GT(saved(2), 0);
  config.training.execution.use_compile = false;
  EXPECT_EQ(saved(2), 0);
  EXPECT_GT(saved(1), 0);
  config.training.optimizer.kind = OptimizerKind::muon;
  EXPECT_EQ(saved(1), 0);
}

TEST(FindSavers, SixteenBitsAloneAreOfferedWhereTheRunHasThemEndToEnd) {
  Config config = gpt2_small_run(12);
  config.training.gradient_accumulation_steps = 2;
  const device::DeviceInfo card = device::find_card("A100")->describe();
  const std::string master = "training.master_weights: false", gradients = "training.gradient_dtype: bfloat16";
  constexpr double kParameters = 124475904;  // with 50,304 rows of vocabulary
  EXPECT_EQ(saved_by(find_savers({config, card, "flash"}, 0), master), 4 * kParameters);
  EXPECT_GE(saved_by(find_savers({config, card, "flash"}, 0), gradients), 2 * kParameters);
  config.training.precision.master_weights = false;
  config.training.precision.gradient_dtype = GradientDtype::bfloat16;
  for (const auto& name : {master, gradients}) EXPECT_EQ(saved_by(find_savers({config, card, "flash"}, 0), name), 0);
  config.training.precision = {.amp_mode = AmpMode::autocast};
  for (const auto& name : {master, gradients}) EXPECT_EQ(saved_by(find_savers({config, card, "flash"}, 0), name), 0);
}

class FittingSettingsOf : public testing::Test {
 protected:
  FittingSettingsOf() { config_.training.batch_size = 12, config_.training.gradient_accumulation_steps = 5; }

  // By the estimate, with the configuration as it is now.
  double needed() const {
    const device::Precision precision = device::resolve_precision(config_.training.precision, card_);
    return estimate_memory(config_.model, config_.training,
                           activation_form(config_.model, config_.training, {}, card_, precision, "flash"))
        .total();
  }
  std::vector<FittingSettings> found(double room, double data = 0, bool is_saved = false) const {
    return find_fitting_settings({config_, card_, "flash"}, data, room, is_saved);
  }

  const device::DeviceInfo card_ = device::find_card("RTX 4090")->describe();
  Config config_ = gpt2_small_run(12);
};

TEST_F(FittingSettingsOf, ARunAreTheLargestBatchAndTheSmallestSaverThatAreEnough) {
  const double now = needed();
  config_.training.execution.gradient_checkpointing = GradientCheckpointing::norm;
  const double with_norm = needed();
  config_.training.execution.gradient_checkpointing = GradientCheckpointing::none;
  config_.training.batch_size = 10;  // 10 sequences at a time, of 60 in all
  const double with_ten = needed();
  config_.training.batch_size = 12;
  const auto ways = found(std::max(with_norm, with_ten));
  ASSERT_EQ(ways.size(), 2u);
  EXPECT_EQ(ways[0].settings,
            std::vector<std::string>(
                {"training.batch_size: 10 and training.gradient_accumulation_steps: 6, the same effective batch"}));
  EXPECT_EQ(ways[0].bytes, with_ten);
  EXPECT_FALSE(ways[0].may_resume);
  ASSERT_EQ(ways[1].settings.size(), 1u);
  EXPECT_TRUE(ways[1].may_resume);
  EXPECT_LE(ways[1].bytes, std::max(with_norm, with_ten));
  EXPECT_GE(ways[1].bytes, with_norm) << "of those that are enough it saves the least";
  EXPECT_LT(ways[1].bytes, now);
}

TEST_F(FittingSettingsOf, ARunAreCombinedWhereASingleOneIsNotEnough) {
  config_.training.execution.gradient_checkpointing = GradientCheckpointing::block;
  config_.training.optimizer.state_dtype = StateDtype::int8;
  const double with_both = needed();
  config_.training.batch_size = 1;
  config_.training.precision.master_weights = false;
  config_.training.precision.gradient_dtype = GradientDtype::bfloat16;
  const double least = needed();
  config_ = gpt2_small_run(12);
  const auto ways = found(with_both, 0, /*is_saved=*/true);
  ASSERT_FALSE(ways.empty());
  EXPECT_EQ(ways[0].settings[0], "training.gradient_checkpointing: block");
  EXPECT_GE(ways[0].settings.size(), 2u);
  EXPECT_LE(ways[0].bytes, with_both);
  EXPECT_TRUE(ways[0].may_resume);
  const auto smallest = found(1.02 * least);
  ASSERT_EQ(smallest.size(), 1u) << "with the whole batch nothing is enough";
  EXPECT_LE(smallest[0].bytes, 1.02 * least);
  EXPECT_TRUE(found(0.1 * least).empty());
}

TEST_F(FittingSettingsOf, ARunWithItsTokensOnTheDeviceMayLeaveThemOnTheHost) {
  const auto ways = found(needed(), /*data=*/1e9);
  ASSERT_EQ(ways.size(), 2u);
  EXPECT_EQ(ways[1].settings, std::vector<std::string>({"data.resident: off"}));
  EXPECT_EQ(ways[1].bytes, needed());
}

}  // namespace
}  // namespace gpt::plan
