// Against the same figures computed by hand in float64, in a model that is simple enough for that.
#include "gpt/prune/importance.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "support/expect_error.h"
#include "support/model_forms.h"
#include "support/tolerance.h"

namespace gpt::prune {
namespace {

using Role = layout::ParameterRole;

// A model of one layer and one position, so that a head's output is its value.
ModelConfig one_layer(bool is_gated) {
  ModelConfig config;
  config.n_layer = 1, config.n_head = 2, config.n_embd = 8, config.n_hidden = 6, config.block_size = 1;
  config.vocab_size = 11, config.dropout = 0, config.position = Position::learned;
  config.norm = Norm::layernorm, config.bias = true, config.mlp = is_gated ? Mlp::swiglu : Mlp::gelu;
  return config;
}

model::GPT with_large_values(const ModelConfig& config) {
  model::GPT model(config, at::kCPU, 1);
  const at::NoGradGuard no_gradients;
  at::manual_seed(2);
  for (size_t i = 0; i < model.parameters().rows().size(); ++i) {
    const at::Tensor value = model.parameters()[i].value();
    value.add_(at::randn_like(value), 0.3);
  }
  return model;
}

// `sequences`: (N, T + 1) ids.
batches::Batch batch_of(const at::Tensor& sequences) {
  const int64_t T = sequences.size(1) - 1;
  return {sequences.narrow(1, 0, T), sequences.narrow(1, 1, T)};
}

struct ByHand {
  at::Tensor neurons, heads;
  double layer, loss;
};

ByHand computed_by_hand(const model::GPT& model, const at::Tensor& sequences) {
  const auto weight = [&](Role role, int64_t layer = 0) {
    return test::exact(model.parameters().weight(role, layer).value());
  };
  const auto bias = [&](Role role, int64_t layer = 0) {
    return test::exact(model.parameters().bias(role, layer).value());
  };
  const auto normed = [&](const at::Tensor& x, Role role, int64_t layer = 0) {
    return at::layer_norm(x, {8}, weight(role, layer), bias(role, layer), model.config().norm_eps);
  };
  const auto product = [&](const at::Tensor& x, Role role) { return at::linear(x, weight(role), bias(role)); };
  const auto added = [](const at::Tensor& x, const at::Tensor& out) {
    return x.abs().mean(0) * out.pow(2).sum(0).sqrt();
  };
  const at::Tensor ids = sequences.select(1, 0);
  const at::Tensor in = weight(Role::token_embedding, -1).index_select(0, ids) + weight(Role::position_embedding, -1);
  const at::Tensor heads = product(normed(in, Role::attention_norm), Role::attention_in).narrow(1, 16, 8);
  const at::Tensor middle = in + product(heads, Role::attention_out), x = normed(middle, Role::mlp_norm);
  const at::Tensor neurons = model.config().mlp == Mlp::gelu
                                 ? at::gelu(product(x, Role::mlp_in), "tanh")
                                 : at::silu(product(x, Role::mlp_gate)) * product(x, Role::mlp_in);
  const at::Tensor out = middle + product(neurons, Role::mlp_out);
  const at::Tensor logits =
      at::linear(normed(out, Role::final_norm, 1), weight(Role::token_embedding, -1)).narrow(1, 0, 11);
  const at::Tensor loss = -at::log_softmax(logits, 1).gather(1, sequences.select(1, 1).unsqueeze(1)).mean();
  return {added(neurons, weight(Role::mlp_out)), added(heads, weight(Role::attention_out)).view({2, 4}).sum(1),
          1 - at::cosine_similarity(in, out, 1).mean().item<double>(), loss.item<double>()};
}

TEST(MeasuredImportance, IsWhatEachPartAddsToTheStream) {
  for (const bool is_gated : {false, true}) {
    model::GPT model = with_large_values(one_layer(is_gated));
    const auto before = model.operators();
    at::manual_seed(3);
    const at::Tensor sequences = at::randint(0, 11, {5000, 2}, at::kLong);  // two batches
    const Measured found = measure_importance(model, batch_of(sequences));
    EXPECT_EQ(model.operators(), before);
    const ByHand expected = computed_by_hand(model, sequences);
    const double tolerance = test::tolerance(at::kFloat, 100);
    ASSERT_EQ(found.importance.neurons.at(0).size(), 6u);
    ASSERT_EQ(found.importance.heads.at(0).size(), 2u);
    const auto expect_near = [&](double value, double exact) {
      EXPECT_NEAR(value, exact, tolerance * (1 + std::abs(exact)));
    };
    for (int64_t i = 0; i < 6; ++i)
      expect_near(found.importance.neurons[0][static_cast<size_t>(i)], expected.neurons[i].item<double>());
    for (int64_t i = 0; i < 2; ++i)
      expect_near(found.importance.heads[0][static_cast<size_t>(i)], expected.heads[i].item<double>());
    expect_near(found.importance.layers.at(0), expected.layer);
    expect_near(found.loss, expected.loss);
    expect_near(mean_loss(model, batch_of(sequences)), expected.loss);
  }
}

TEST(MeasuredImportance, ALayerThatAddsNothingDoesNotTurnTheStream) {
  ModelConfig config = one_layer(/*is_gated=*/true);
  config.n_layer = 3, config.block_size = 4, config.n_kv_head = 1, config.bias = false;
  model::GPT model = with_large_values(config);
  {
    const at::NoGradGuard no_gradients;
    for (const Role role : {Role::attention_out, Role::mlp_out}) model.parameters().weight(role, 1).value().zero_();
  }
  const Importance found = measure_importance(model, batch_of(at::randint(0, 11, {7, 5}, at::kLong))).importance;
  EXPECT_NEAR(found.layers.at(1), 0, test::tolerance(at::kFloat, 8));
  EXPECT_GT(found.layers.at(0), 0.01);
  EXPECT_GT(found.layers.at(2), 0.01);
  EXPECT_EQ(found.neurons.at(1), std::vector<double>(6, 0.0));
}

TEST(MeasuredImportance, ALossThatIsNotFiniteIsAnError) {
  model::GPT model = with_large_values(one_layer(/*is_gated=*/false));
  {
    const at::NoGradGuard no_gradients;
    model.parameters()[0].value().fill_(std::numeric_limits<float>::quiet_NaN());
  }
  EXPECT_ERROR(measure_importance(model, batch_of(at::randint(0, 11, {2, 2}, at::kLong))), ExitCode::numerics,
               "is not finite");
}

// Two conversations side by side, of 3 and 2 positions, and padding in the second row.
TEST(MeasuredImportance, PaddingAndWhatIsNotLearnedDoNotCount) {
  ModelConfig config = one_layer(/*is_gated=*/true);
  config.n_layer = 2, config.block_size = 5, config.position = Position::rope;
  model::GPT model = with_large_values(config);
  at::manual_seed(4);
  const at::Tensor ids = at::randint(0, 11, {2, 6}, at::kLong);
  batches::Batch packed{ids.narrow(1, 0, 5).clone(), ids.narrow(1, 1, 5).clone(),
                        at::tensor({0, 0, 0, 3, 3, 0, 0, 0, 3, 3}, at::kInt).view({2, 5})};
  packed.targets[0][0] = packed.targets[0][3] = packed.targets[1][1] = -1;
  packed.targets[1].narrow(0, 3, 2).fill_(-1);
  const Measured found = measure_importance(model, packed);
  // The same three, each by itself.
  const auto segment = [&](int64_t row, int64_t begin, int64_t length) {
    return batches::Batch{packed.inputs[row].narrow(0, begin, length).unsqueeze(0),
                          packed.targets[row].narrow(0, begin, length).unsqueeze(0)};
  };
  double loss = 0, turn = 0;
  at::Tensor neurons = at::zeros({6}, at::kDouble);
  for (const auto& [row, begin, length, learned] :
       std::vector<std::array<int64_t, 4>>{{0, 0, 3, 2}, {0, 3, 2, 1}, {1, 0, 3, 2}}) {
    const Measured one = measure_importance(model, segment(row, begin, length));
    loss += one.loss * static_cast<double>(learned) / 5;
    turn += one.importance.layers.at(1) * static_cast<double>(length) / 8;
    neurons += at::tensor(one.importance.neurons.at(1), at::kDouble) * static_cast<double>(length) / 8;
  }
  const double tolerance = test::tolerance(at::kFloat, 100);
  EXPECT_NEAR(found.loss, loss, tolerance * (1 + loss));
  EXPECT_NEAR(found.importance.layers.at(1), turn, tolerance);
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_NEAR(found.importance.neurons.at(1)[static_cast<size_t>(i)], neurons[i].item<double>(), tolerance * 10);
}

TEST(RandomImportance, FollowsFromItsSeed) {
  const ModelConfig config = one_layer(/*is_gated=*/true);
  EXPECT_EQ(random_importance(config, 1).neurons, random_importance(config, 1).neurons);
  EXPECT_NE(random_importance(config, 1).neurons, random_importance(config, 2).neurons);
}

}  // namespace
}  // namespace gpt::prune
