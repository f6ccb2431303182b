#include "gpt/model/gradient_mark.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "gpt/layout/parameter_table.h"
#include "gpt/model/gpt.h"
#include "support/device_cases.h"

namespace gpt::model {
namespace {

TEST(GradientMark, TellsOnceWhatWasComputedFromItHasBeenPassed) {
  std::vector<int> order;
  const at::Tensor x = at::full({3}, 2.0).requires_grad_();
  const at::Tensor y = mark_gradient(x, [&] { order.push_back(1); });
  const at::Tensor z = mark_gradient(y * y, [&] { order.push_back(2); });
  EXPECT_TRUE(y.equal(x));
  z.sum().backward();
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
  EXPECT_TRUE(x.grad().equal(at::full({3}, 4.0)));
}

struct Form {
  Norm norm;
  Mlp mlp;
  bool ties;
  GradientCheckpointing level;
};

class LayerDone : public testing::TestWithParam<std::tuple<DeviceCase, Form>> {};

constexpr int64_t kIds = 50, kGradientLength = 8;

ModelConfig layered_config(const Form& form) {
  ModelConfig config;
  config.n_layer = 3, config.n_head = 2, config.n_embd = 16, config.block_size = kGradientLength,
  config.vocab_size = kIds;
  config.norm = form.norm, config.mlp = form.mlp, config.tie_weights = form.ties;
  config.bias = form.norm == Norm::layernorm;
  return config;
}

// Copies of rows' gradients, by the rows' names.
using Gradients = std::map<std::string, at::Tensor>;

Gradients gradients_from(const GPT& model, int64_t layer) {
  Gradients result;
  const parameters::Parameters& parameters = model.parameters();
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const layout::ParameterRow& row = parameters.rows()[i];
    if (row.layer >= layer) result.emplace(row.name, parameters[i].gradient().clone());
  }
  return result;
}

// When a layer is said to be done, its gradients and those of all later layers are what they are in the end.
TEST_P(LayerDone, IsSaidWhenItsGradientsAreComplete) {
  const auto& [device_case, form] = GetParam();
  GPT_SKIP_WITHOUT(device_case);
  GPT model(layered_config(form), device_case.device, /*seed=*/1);
  model.set_gradient_checkpointing(form.level);
  model.train(true);
  const at::Tensor ids = at::randint(kIds, {2, kGradientLength}, at::kLong).to(device_case.device);
  model.parameters().gradient_buffer(0).fill_(NAN);
  std::vector<int64_t> layers;
  std::vector<Gradients> when_done;
  const at::Tensor upstream = at::ones({}, device_case.device);
  const auto layer_done = [&](int64_t layer) {
    layers.push_back(layer);
    when_done.push_back(gradients_from(model, layer));
  };
  model.loss(ids, ids, {.upstream = upstream, .layer_done = layer_done}).backward(upstream);
  EXPECT_EQ(layers, (std::vector<int64_t>{3, 2, 1, 0}));
  for (size_t i = 0; i < layers.size(); ++i) {
    const Gradients at_the_end = gradients_from(model, layers[i]);
    EXPECT_EQ(when_done[i].size(), at_the_end.size());
    for (const auto& [name, gradient] : at_the_end)
      EXPECT_TRUE(when_done[i].at(name).equal(gradient)) << name << " when layer " << layers[i] << " was done";
  }
}

constexpr Form llama(bool ties, GradientCheckpointing level) { return {Norm::rmsnorm, Mlp::swiglu, ties, level}; }
constexpr Form gpt2(bool ties, GradientCheckpointing level) { return {Norm::layernorm, Mlp::gelu, ties, level}; }

INSTANTIATE_TEST_SUITE_P(All, LayerDone,
                         testing::Combine(testing::ValuesIn(kDevices),
                                          testing::Values(llama(true, GradientCheckpointing::none),
                                                          llama(false, GradientCheckpointing::activation),
                                                          llama(true, GradientCheckpointing::selective),
                                                          gpt2(false, GradientCheckpointing::none),
                                                          gpt2(true, GradientCheckpointing::block))),
                         index_and_device);

}  // namespace
}  // namespace gpt::model
