// Linear layers whose products are computed in 8 bits.
#include "gpt/ops/eight_bit_operators.h"
#include "gpt/model/evaluation_mode.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <utility>
#include <vector>

#include "gpt/model/gpt.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/products/eight_bit_product.h"
#include "support/parameter_of.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

constexpr EightBitType kInt8 = EightBitType::int8;
constexpr int64_t kLayer = 1;

const parameters::ParameterTypes kParameterTypes[] = {{},
                                                      {at::kBFloat16},
                                                      {at::kBFloat16, true, at::kBFloat16},
                                                      {at::kBFloat16, false, at::kBFloat16}};

SharedOperators eight_bits(bool all_products) {
  return eight_bit_operators(fused_operators(), kInt8, all_products, kLayer, kLayer + 1);
}

struct Result {
  at::Tensor y, x_gradient, weight_gradient, bias_gradient;
};

// Results of the layer, computed twice as two micro-batches of an update compute it.
Result compute(const Operators& operators, const at::Tensor& x, const LinearLayer& layer, const at::Tensor& gradient) {
  layer.weight.clear_gradient(), layer.bias.clear_gradient();
  Result result;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const at::Tensor leaf = x.detach().requires_grad_();
    result.y = operators.linear(leaf, layer, ProductInput::keep);
    result.y.backward(gradient);
    result.x_gradient = leaf.grad();
  }
  result.weight_gradient = layer.weight.gradient().clone(), result.bias_gradient = layer.bias.gradient().clone();
  return result;
}

class EightBitLinear : public testing::TestWithParam<parameters::ParameterTypes> {
 protected:
  void SetUp() override { at::manual_seed(1); }

  LinearLayer layer(int64_t out, int64_t in, int64_t number = kLayer) const {
    return {test::parameter_of(at::randn({out, in}).requires_grad_(), GetParam()),
            test::parameter_of(at::randn({out}).requires_grad_(), GetParam()),
            {layout::ParameterRole::mlp_in, number}};
  }
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes).to(GetParam().compute); }
};
INSTANTIATE_TEST_SUITE_P(, EightBitLinear, testing::ValuesIn(kParameterTypes));

TEST_P(EightBitLinear, GradientsAreThoseOfTheUnquantizedBackwardPass) {
  const LinearLayer of = layer(29, 37);
  const at::Tensor x = random({3, 11, 37}), gradient = random({3, 11, 29});
  const Result usual = compute(*fused_operators(), x, of, gradient),
               own = compute(*eight_bits(/*all_products=*/false), x, of, gradient);
  const at::Tensor product =
      eight_bit_product(first_factor(x.view({33, 37}), kInt8), second_factor(of.weight.compute_value().detach(), kInt8),
                        of.bias.compute_value().detach(), GetParam().compute);
  EXPECT_TRUE(own.y.flatten(0, 1).equal(product));
  EXPECT_FALSE(own.y.equal(usual.y));
  EXPECT_TRUE(own.x_gradient.equal(usual.x_gradient));
  EXPECT_TRUE(own.weight_gradient.equal(usual.weight_gradient));
  EXPECT_TRUE(own.bias_gradient.equal(usual.bias_gradient));
}

// Half a step for each value of a row, as of tests/products/eight_bit_product_test.cpp.
at::Tensor bound_of_product(const at::Tensor& a, const at::Tensor& b) {
  const auto step = [](const at::Tensor& x) {
    return test::exact(x).abs().amax(1, /*keepdim=*/true) / 127 * (0.5 + 4 * 127 * test::unit_roundoff(at::kFloat));
  };
  const auto sums = [](const at::Tensor& x) { return test::exact(x).abs().sum(1, /*keepdim=*/true); };
  const at::Tensor of_a = step(a), of_b = step(b).t();
  return sums(a) * of_b + of_a * sums(b).t() + a.size(1) * of_a * of_b;
}

TEST_P(EightBitLinear, AllProductsGiveGradientsAsNearAsRoundingExplains) {
  const LinearLayer of = layer(29, 37);
  const at::Tensor x = random({33, 37}), gradient = random({33, 29}), weight = of.weight.compute_value().detach();
  const Result own = compute(*eight_bits(/*all_products=*/true), x, of, gradient);
  const auto near = [&](const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, int times) {
    const at::Tensor reference = times * at::mm(test::exact(a), test::exact(b).t()),
                     codes = times * bound_of_product(a, b);
    // Both micro-batches are rounded as they are added.
    const at::Tensor bound = codes + 4 * test::unit_roundoff(result.scalar_type()) * (reference.abs() + codes);
    EXPECT_FALSE(test::exact(result).equal(reference));
    return ((test::exact(result) - reference).abs() <= bound).all().item<bool>();
  };
  EXPECT_TRUE(near(own.x_gradient, gradient, weight.t(), 1));
  EXPECT_TRUE(near(own.weight_gradient, gradient.t(), x.t(), 2));
}

TEST_P(EightBitLinear, PairsAddTheirGradientsOfTheInput) {
  const LinearLayer first = layer(16, 24), second = layer(16, 24);
  const at::Tensor x = random({10, 24}), gradient = random({10, 16});
  for (const bool all_products : {false, true}) {
    const SharedOperators operators = eight_bits(all_products);
    const at::Tensor leaf = x.detach().requires_grad_();
    const auto [y, z] = operators->linear_pair(leaf, first, second, ProductInput::keep);
    torch::autograd::backward({y, z}, {gradient, gradient});
    const Result one = compute(*operators, x, first, gradient), other = compute(*operators, x, second, gradient);
    EXPECT_TRUE(y.equal(one.y));
    EXPECT_TRUE(z.equal(other.y));
    const at::Tensor sum = test::exact(one.x_gradient) + test::exact(other.x_gradient);
    // Each is a sum of 16 products, in float32, of an order that depends on where it lies; and what is there is rounded, and the sum.
    const auto magnitudes = [&](const LinearLayer& of) {
      return at::mm(test::exact(gradient).abs(), test::exact(of.weight.compute_value()).abs());
    };
    const at::Tensor bound = (2 * 18 * test::unit_roundoff(at::kFloat) + 3 * test::unit_roundoff(GetParam().compute)) *
                             1.1 * (magnitudes(first) + magnitudes(second));
    EXPECT_TRUE(((test::exact(leaf.grad()) - sum).abs() <= bound).all().item<bool>());
  }
}

TEST_P(EightBitLinear, OtherLayersAreLeftAsTheyAre) {
  const at::Tensor x = random({10, 24}), gradient = random({10, 16});
  for (const int64_t number : {kLayer - 1, kLayer + 1}) {
    const LinearLayer of = layer(16, 24, number);
    const Result usual = compute(*fused_operators(), x, of, gradient),
                 own = compute(*eight_bits(/*all_products=*/true), x, of, gradient);
    EXPECT_TRUE(own.y.equal(usual.y));
    EXPECT_TRUE(own.weight_gradient.equal(usual.weight_gradient));
  }
}

TEST_P(EightBitLinear, WeightsAreRoundedOnceUntilTheirValuesChange) {
  const at::NoGradGuard no_gradients;
  const LinearLayer of = layer(16, 24);
  const at::Tensor x = random({10, 24});
  const SharedOperators operators = eight_bits(/*all_products=*/false);
  const at::Tensor before = operators->linear(x, of, ProductInput::keep);
  of.weight.compute_value().mul_(2);
  EXPECT_TRUE(operators->linear(x, of, ProductInput::keep).equal(before));
  operators->values_changed();
  EXPECT_FALSE(operators->linear(x, of, ProductInput::keep).equal(before));
  EXPECT_TRUE(operators->linear_activated(Activation::gelu, x, of, ProductInput::keep)
                  .equal(fused_operators()->activate(Activation::gelu, operators->linear(x, of, ProductInput::keep))));
}

ModelConfig small_model() {
  ModelConfig config;
  config.vocab_size = 65, config.n_layer = 3, config.n_head = 2, config.n_embd = 32, config.block_size = 16;
  config.dropout = 0.1;
  return config;
}

struct Learned {
  double loss;
  at::Tensor gradients;
};

Learned learn(model::GPT& model, const at::Tensor& ids) {
  model.parameters().clear_gradients();
  const at::Tensor loss = model.loss(ids, ids);
  loss.backward();
  return {loss.item<double>(), model.parameters().flat_gradients().clone()};
}

TEST(EightBitModel, RecomputationGivesTheSameAndValidationIsUnquantized) {
  const ModelConfig config = small_model();
  at::manual_seed(2);
  const at::Tensor ids = at::randint(65, {2, 16});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    model::GPT model(config, at::kCPU, /*seed=*/1, {type});
    const at::Tensor validation = model.token_losses(ids, ids);
    model.train(true);
    const Learned usual = learn(model, ids);
    for (const bool all_products : {false, true}) {
      model.set_training_operators(eight_bit_operators(fused_operators(), kInt8, all_products, 1, 2));
      const Learned own = learn(model, ids);
      EXPECT_NE(own.loss, usual.loss);
      EXPECT_NEAR(own.loss, usual.loss, 0.01 * usual.loss);
      for (const auto level :
           {GradientCheckpointing::norm, GradientCheckpointing::selective, GradientCheckpointing::block}) {
        model.set_gradient_checkpointing(level);
        const Learned again = learn(model, ids);
        EXPECT_EQ(again.loss, own.loss);
        EXPECT_TRUE(again.gradients.equal(own.gradients));
      }
      model.set_gradient_checkpointing(GradientCheckpointing::none);
      const model::EvaluationMode evaluation(model);
      EXPECT_TRUE(model.token_losses(ids, ids).equal(validation));
    }
  }
}

}  // namespace
}  // namespace gpt::ops
