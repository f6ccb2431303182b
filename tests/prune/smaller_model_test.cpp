// Independent of how it is made smaller: a model in which what goes adds nothing to the residual stream computes the same without it.
#include "gpt/prune/smaller_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gpt/model/gpt.h"
#include "support/cached_batch.h"
#include "support/model_forms.h"
#include "support/tolerance.h"

namespace gpt::prune {
namespace {

using Role = layout::ParameterRole;

bool is_in(const std::vector<int64_t>& indices, int64_t index) {
  return std::find(indices.begin(), indices.end(), index) != indices.end();
}

// Clears what of the weights makes the output of a neuron, a head or a layer that is not kept, but for a bias of a layer that stays.
void silence(const model::GPT& model, const std::vector<KeptLayer>& kept) {
  const ModelConfig& config = model.config();
  const at::NoGradGuard no_gradients;
  for (int64_t layer = 0; layer < config.n_layer; ++layer) {
    const auto stays = std::find_if(kept.begin(), kept.end(), [&](const KeptLayer& one) { return one.layer == layer; });
    const auto columns = [&](Role role, const std::vector<int64_t>& indices, int64_t width) {
      const at::Tensor weight = model.parameters().weight(role, layer).value();
      for (int64_t i = 0; i < weight.size(1) / width; ++i)
        if (stays == kept.end() || !is_in(indices, i)) weight.narrow(1, i * width, width).zero_();
      const parameters::Parameter bias = model.parameters().bias(role, layer);
      if (stays == kept.end() && bias.defined()) bias.value().zero_();
    };
    columns(Role::attention_out, stays == kept.end() ? std::vector<int64_t>{} : stays->heads, config.head_dim());
    columns(Role::mlp_out, stays == kept.end() ? std::vector<int64_t>{} : stays->neurons, 1);
  }
}

// Values that differ wherever a model has some, biases and norms too, and large enough for attention to be far from uniform.
model::GPT drawn(const ModelConfig& config) {
  model::GPT model(config, at::kCPU, 1);
  const at::NoGradGuard no_gradients;
  at::manual_seed(2);
  for (size_t i = 0; i < model.parameters().rows().size(); ++i) {
    const at::Tensor value = model.parameters()[i].value();
    value.add_(at::randn_like(value), 0.15);
  }
  return model;
}

class SmallerModel : public testing::TestWithParam<test::ModelForm> {
 protected:
  static void expect_same(const ModelConfig& config, const std::vector<KeptLayer>& kept) {
    const at::NoGradGuard no_gradients;
    const model::GPT large = drawn(config);
    silence(large, kept);
    const model::GPT small(smaller_config(config, kept), at::kCPU,
                           smaller_weights(config, large.parameters().values(), kept));
    EXPECT_LT(small.parameters().count(), large.parameters().count());
    const at::Tensor ids = at::randint(0, 101, {2, config.block_size}, at::kLong);
    const at::Tensor expected = large.forward(ids), found = small.forward(ids);
    const int64_t roundings =
        2 * config.n_layer * (5 * config.n_embd + config.head_dim() + config.block_size + config.hidden());
    const double bound = test::tolerance(at::kFloat, roundings, expected.abs().max().item<double>());
    EXPECT_LE((found - expected).abs().max().item<double>(), bound);
    model::KvCache cache = small.make_cache(2, config.block_size, at::kFloat);
    (void)test::forward_cached(small, ids.narrow(1, 0, 9), cache);
    const at::Tensor cached = test::forward_cached(small, ids.narrow(1, 9, 1), cache);
    EXPECT_LE((cached - expected.select(1, 9)).abs().max().item<double>(), bound);
  }

  static ModelConfig config() {
    ModelConfig config = test::config_of(GetParam());
    config.n_layer = 3, config.n_hidden = 6;
    return config;
  }
};

TEST_P(SmallerModel, ComputesTheSameWithoutWhatAddsNothing) {
  expect_same(config(), {{0, {1, 2, 4, 5}, {0, 1, 2, 3}, {0, 1}}, {2, {0, 1, 3, 5}, {0, 1, 2, 3}, {0, 1}}});
}

TEST_P(SmallerModel, WholeGroupsOfHeadsGo) {
  if (config().qk_norm == QkNorm::all) GTEST_SKIP() << "they are normalized together";
  expect_same(config(), {{0, {0, 1, 2, 3, 4, 5}, {2, 3}, {1}},
                         {1, {0, 1, 2, 3, 4, 5}, {0, 1}, {0}},
                         {2, {0, 1, 2, 3, 4, 5}, {2, 3}, {1}}});
}

TEST_P(SmallerModel, AQueryOfEachGroupGoes) {
  if (config().qk_norm == QkNorm::all) GTEST_SKIP() << "they are normalized together";
  expect_same(config(), {{1, {0, 2, 4}, {1, 2}, {0, 1}}, {2, {1, 3, 5}, {0, 3}, {0, 1}}});
}

TEST_P(SmallerModel, SingleHeadsGoWhereEachHasItsOwnKeys) {
  ModelConfig own = config();
  if (own.qk_norm == QkNorm::all) GTEST_SKIP() << "they are normalized together";
  own.n_kv_head.reset();
  expect_same(own, {{0, {0, 1, 2, 3, 4, 5}, {0, 2, 3}, {0, 2, 3}}, {2, {0, 1, 2, 3, 4, 5}, {0, 1, 3}, {0, 1, 3}}});
}

TEST_P(SmallerModel, QueriesKeepChoosingBlocks) {
  ModelConfig model = config();
  model.attention = AttentionForm::blocks, model.attention_block = 128, model.attention_top_blocks = 3;
  const ModelConfig smaller = smaller_config(model, {{1, {0, 2, 4}, {1, 2}, {0, 1}}});
  EXPECT_EQ(smaller.attention, AttentionForm::blocks);
  EXPECT_EQ(smaller.attention_block, 128);
  EXPECT_EQ(smaller.attention_top_blocks, 3);
}

TEST_P(SmallerModel, LayersKeepTheirWindows) {
  ModelConfig windowed = config();
  windowed.attention_window = 3, windowed.window_pattern = "LSL";
  expect_same(windowed, {{1, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3}, {0, 1}}, {2, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3}, {0, 1}}});
}

INSTANTIATE_TEST_SUITE_P(Forms, SmallerModel, test::model_forms(),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(SmallerConfig, SaysTheWidthOfHeadsOnlyWhereItDoesNotFollow) {
  ModelConfig model;
  model.preset = Preset::gpt2_small, model.n_layer = 2, model.n_head = 4, model.n_embd = 64;
  const std::vector<int64_t> all{0, 1, 2, 3}, three{0, 1, 3};
  const ModelConfig fewer = smaller_config(model, {{0, {5, 7}, three, three}});
  EXPECT_EQ(fewer.n_layer, 1);
  EXPECT_EQ(fewer.heads(), 3);
  EXPECT_EQ(fewer.kv_heads(), 3);
  EXPECT_EQ(fewer.n_head_dim, 16);
  EXPECT_EQ(fewer.n_hidden, 2);
  EXPECT_EQ(fewer.preset, Preset::none);
  EXPECT_EQ(smaller_config(model, {{0, {5}, all, all}}).n_head_dim, std::nullopt);
  EXPECT_EQ(smaller_config(model, {{0, {5}, all, all}}).n_kv_head, std::nullopt);
}

}  // namespace
}  // namespace gpt::prune
