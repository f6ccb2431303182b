#include "gpt/config/block_form.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpt {
namespace {

ModelConfig gpt2() {
  ModelConfig config;
  config.preset = Preset::gpt2_small;
  apply_preset(config);
  return config;
}

TEST(BlockForm, OfTheFamiliesAreValues) {
  const BlockForm of_gpt2{.norm = NormForm{Norm::layernorm, 1e-5, /*has_bias=*/true},
                          .out_norm = {},
                          .head_norm = {},
                          .heads_norm = {},
                          .rotary = {},
                          .window = 0,
                          .attention_in_bias = true,
                          .attention_out_bias = true,
                          .mlp = {Mlp::gelu, 3072, /*has_bias=*/true}};
  const BlockForm of_llama{.norm = NormForm{Norm::rmsnorm, 1e-6, /*has_bias=*/false},
                           .out_norm = {},
                           .head_norm = {},
                           .heads_norm = {},
                           .rotary = RotaryForm{5e5, {}},
                           .window = 0,
                           .attention_in_bias = false,
                           .attention_out_bias = false,
                           .mlp = {Mlp::swiglu, 1024, /*has_bias=*/false}};
  ModelConfig llama;
  llama.norm_eps = 1e-6, llama.rope_theta = 5e5;
  for (const int64_t layer : {0, 5}) {
    EXPECT_TRUE(block_form(gpt2(), layer) == of_gpt2) << layer;
    EXPECT_TRUE(block_form(llama, layer) == of_llama) << layer;
  }
  EXPECT_TRUE(final_norm_form(gpt2()) == of_gpt2.norm);
  EXPECT_TRUE(final_norm_form(llama) == of_llama.norm);
}

TEST(BlockForm, MayMixThem) {
  ModelConfig config;  // Llama's with biases of its products
  config.bias = true;
  BlockForm form = block_form(config, 0);
  EXPECT_TRUE(form.attention_in_bias && form.attention_out_bias && form.mlp.has_bias);
  EXPECT_FALSE(form.norm->has_bias) << "an RMSNorm has none";
  config = gpt2();
  config.bias = false, config.position = Position::rope;
  form = block_form(config, 0);
  EXPECT_FALSE(form.norm->has_bias || form.attention_in_bias || form.attention_out_bias || form.mlp.has_bias);
  EXPECT_TRUE(form.rotary == (RotaryForm{10000, {}}));
}

TEST(BlockForm, MayHaveABiasOfQueriesKeysAndValuesAlone) {
  ModelConfig config;
  config.qkv_bias = true;
  const BlockForm form = block_form(config, 0);
  EXPECT_TRUE(form.attention_in_bias);
  EXPECT_FALSE(form.attention_out_bias || form.mlp.has_bias || form.norm->has_bias);
}

TEST(BlockForm, MayNormalizeQueriesAndKeys) {
  ModelConfig config;
  config.norm_eps = 1e-6;
  EXPECT_FALSE(block_form(config, 0).head_norm);
  config.qk_norm = QkNorm::heads;
  EXPECT_TRUE(block_form(config, 0).head_norm == (NormForm{Norm::rmsnorm, 1e-6, false}));
  config.norm = Norm::layernorm, config.bias = true;
  EXPECT_TRUE(block_form(config, 0).head_norm == (NormForm{Norm::rmsnorm, 1e-6, false})) << "whatever others are";
}

TEST(BlockForm, MayNormalizeWhatItsPartsGive) {
  ModelConfig config;
  const NormForm norm = final_norm_form(config);
  config.norm_place = NormPlace::output;
  EXPECT_TRUE(!block_form(config, 0).norm && block_form(config, 0).out_norm == norm);
  config.norm_place = NormPlace::both, config.norm_unit_offset = true, config.qk_norm = QkNorm::all;
  const BlockForm form = block_form(config, 0);
  EXPECT_TRUE(form.norm == form.out_norm && form.norm->has_unit_offset);
  EXPECT_TRUE(!form.head_norm && form.heads_norm && form.heads_norm->has_unit_offset);
}

TEST(BlockForm, RotatesByABaseOfItsOwnWhereItHasAWindow) {
  ModelConfig config;
  config.n_layer = 2, config.attention_window = 64, config.window_pattern = "SL", config.rope_window_theta = 100;
  config.rope_scaling.kind = RopeScalingKind::linear;
  EXPECT_TRUE(block_form(config, 0).rotary == (RotaryForm{100, {}})) << "and is not scaled";
  EXPECT_TRUE(block_form(config, 1).rotary == (RotaryForm{10000, config.rope_scaling}));
  config.block_size = 32;
  EXPECT_EQ(block_form(config, 0).window, 0) << "sequences are no longer than it";
  EXPECT_TRUE(block_form(config, 0).rotary == (RotaryForm{100, {}})) << "but it is the same model";
}

TEST(BlockForm, DiffersFromLayerToLayerInItsRotation) {
  ModelConfig config;
  config.n_layer = 5, config.rope_pattern = "RRN";
  std::vector<bool> rotates;
  for (int64_t layer = 0; layer < config.n_layer; ++layer)
    rotates.push_back(block_form(config, layer).rotary.has_value());
  EXPECT_EQ(rotates, (std::vector<bool>{true, true, false, true, true}));
  config.position = Position::learned;
  EXPECT_FALSE(block_form(config, 0).rotary);
}

TEST(BlockForm, DiffersFromLayerToLayerInItsWindow) {
  ModelConfig config;
  config.n_layer = 4, config.attention_window = 64, config.window_pattern = "S";
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < config.n_layer; ++layer) {
    BlockForm form = block_form(config, layer);
    windows.push_back(form.window);
    form.window = 64;
    EXPECT_TRUE(form == block_form(config, 0)) << layer;
  }
  EXPECT_EQ(windows, (std::vector<int64_t>{64, 64, 64, 0})) << "the last layer is full";
  config.last_layer_full = false;
  EXPECT_EQ(block_form(config, 3).window, 64);
}

}  // namespace
}  // namespace gpt
