#include "gpt/diagnose/savers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gpt/device/cards.h"
#include "gpt/device/precision.h"
#include "gpt/diagnose/estimates.h"

namespace gpt {
namespace {

using Savers = std::vector<Check::Saver>;

Config gpt2_small() {
  Config config;
  ModelConfig& model = config.model;
  model.n_layer = 12, model.n_head = 12, model.n_embd = 768, model.block_size = 1024;
  model.norm = Norm::layernorm, model.mlp = Mlp::gelu, model.position = Position::learned;
  model.bias = true, model.dropout = 0, model.vocab_size = 50257;
  config.training.batch_size = 12;
  return config;
}

double saved_by(const Savers& savers, const std::string& setting) {
  const auto found =
      std::find_if(savers.begin(), savers.end(), [&](const auto& saver) { return saver.setting == setting; });
  return found == savers.end() ? 0 : found->bytes;
}

TEST(FindSavers, EachSavesWhatTheEstimateSaysInOrderOfGain) {
  const DeviceInfo card = find_card("RTX 4090")->describe();
  Config config = gpt2_small();
  const auto needed = [&] {
    const Precision precision = resolve_precision(config.training.precision, card);
    return estimate_memory(config.model, config.training,
                           activation_form(config.model, config.training, card, precision, "flash"))
        .total();
  };
  const Savers savers = find_savers(config, card, "flash", /*data_bytes=*/5e6);
  EXPECT_TRUE(
      std::is_sorted(savers.begin(), savers.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; }));
  EXPECT_EQ(saved_by(savers, "data.resident: off"), 5e6);
  const double before = needed();
  config.training.batch_size = 6, config.training.gradient_accumulation_steps = 2;
  EXPECT_EQ(saved_by(savers, "training.batch_size: 6 and training.gradient_accumulation_steps: 2"), before - needed());
  config.training.batch_size = 12, config.training.gradient_accumulation_steps = 1;
  config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
  EXPECT_EQ(savers[0].setting, "training.gradient_checkpointing: block");
  EXPECT_EQ(savers[0].bytes, before - needed());
}

TEST(FindSavers, WhatIsSetOrNotThereIsNotOffered) {
  Config config = gpt2_small();
  config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
  config.training.batch_size = 1;
  const Savers none = find_savers(config, {}, "flash", 0);
  EXPECT_EQ(saved_by(none, "training.gradient_checkpointing: block"), 0);
  for (const Check::Saver& saver : none) EXPECT_EQ(saver.setting.find("batch_size"), std::string::npos);
  EXPECT_EQ(saved_by(none, "training.use_amp: true and training.dtype: auto"), 0) << "this CPU has no bfloat16";

  config.training.precision = {.use_amp = false, .dtype = Dtype::float32};
  const DeviceInfo card = find_card("T4")->describe();
  EXPECT_GT(saved_by(find_savers(gpt2_small(), find_card("A100")->describe(), "flash", 0),
                     "training.gradient_checkpointing: block"),
            0);
  config.training.batch_size = 8;
  const std::string amp = "training.use_amp: true and training.dtype: auto";
  EXPECT_EQ(saved_by(find_savers(config, card, "efficient", 0), amp), 0) << "the copies of the weights take more";
  config.training.execution.gradient_checkpointing = GradientCheckpointing::none;
  EXPECT_GT(saved_by(find_savers(config, card, "efficient", 0), amp), 0);
}

TEST(FindSavers, SixteenBitsAloneAreOfferedWhereTheRunHasThemEndToEnd) {
  Config config = gpt2_small();
  config.training.gradient_accumulation_steps = 2;
  const DeviceInfo card = find_card("A100")->describe();
  const std::string master = "training.master_weights: false", gradients = "training.gradient_dtype: bfloat16";
  constexpr double kParameters = 124475904;  // with 50,304 rows of vocabulary
  EXPECT_EQ(saved_by(find_savers(config, card, "flash", 0), master), 4 * kParameters);
  EXPECT_GE(saved_by(find_savers(config, card, "flash", 0), gradients), 2 * kParameters);
  config.training.precision.master_weights = false;
  config.training.precision.gradient_dtype = GradientDtype::bfloat16;
  for (const auto& name : {master, gradients}) EXPECT_EQ(saved_by(find_savers(config, card, "flash", 0), name), 0);
  config.training.precision = {.amp_mode = AmpMode::autocast};
  for (const auto& name : {master, gradients}) EXPECT_EQ(saved_by(find_savers(config, card, "flash", 0), name), 0);
}

}  // namespace
}  // namespace gpt
