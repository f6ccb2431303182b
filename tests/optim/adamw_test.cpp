#include "gpt/optim/adamw.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/tolerance.h"

namespace gpt {
namespace {

constexpr AdamWOptions kOptions{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1};
const at::Tensor kOne = at::ones({}), kFinite = at::zeros({}), kOverflow = at::ones({});

NamedTensors make_parameters(at::Generator& generator) {
  NamedTensors parameters{{"matrix", at::randn({13, 7}, generator)}, {"vector", at::randn({19}, generator)}};
  for (auto& [name, parameter] : parameters) parameter.requires_grad_();
  return parameters;
}

void draw_gradients(NamedTensors& parameters, at::Generator& generator) {
  for (auto& [name, parameter] : parameters) parameter.mutable_grad() = at::randn(parameter.sizes(), generator);
}

NamedTensors clone(const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(name, tensor.detach().clone());
  return result;
}

void expect_same_bits(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].second.detach().view(at::kInt).equal(b[i].second.detach().view(at::kInt))) << a[i].first;
  }
}

// Algorithm 2 of the paper, in float64.
struct Reference {
  at::Tensor value, m, v;
  double decay;

  void step(int64_t t, double lr, const at::Tensor& gradient) {
    m = kOptions.beta1 * m + (1 - kOptions.beta1) * gradient;
    v = kOptions.beta2 * v + (1 - kOptions.beta2) * gradient * gradient;
    const at::Tensor m_hat = m / (1 - std::pow(kOptions.beta1, t)), v_hat = v / (1 - std::pow(kOptions.beta2, t));
    value = value - lr * (m_hat / (v_hat.sqrt() + kOptions.eps) + decay * value);
  }
};

TEST(AdamW, FollowsThePaperWithDecayOnMatricesOnly) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  NamedTensors parameters = make_parameters(generator);
  AdamW optimizer(parameters, kOptions);
  std::vector<Reference> references;
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor value = parameter.detach().to(at::kDouble);
    references.push_back(
        {value, at::zeros_like(value), at::zeros_like(value), name == "matrix" ? kOptions.weight_decay : 0.0});
  }
  const int64_t steps = 7;
  for (int64_t t = 1; t <= steps; ++t) {
    const double lr = 0.1 / t;
    draw_gradients(parameters, generator);
    for (size_t i = 0; i < parameters.size(); ++i)
      references[i].step(t, lr, parameters[i].second.grad().to(at::kDouble) / 2.5);
    optimizer.step(lr, at::full({}, 2.5f), kFinite);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& expected = references[i].value;
    const double difference = (parameters[i].second.detach() - expected).abs().max().item<double>();
    EXPECT_LE(difference, test::tolerance(at::kFloat, 12 * steps, expected.abs().max().item<double>()))
        << parameters[i].first;
  }
  EXPECT_EQ(optimizer.step_count().item<float>(), steps);
}

TEST(AdamW, ASkippedUpdateChangesNoBit) {
  at::Generator generator = at::detail::createCPUGenerator(2);
  NamedTensors parameters = make_parameters(generator);
  AdamW optimizer(parameters, kOptions);
  draw_gradients(parameters, generator);
  optimizer.step(0.1, kOne, kFinite);
  const NamedTensors values = clone(parameters), exp_avg = clone(optimizer.exp_avg()),
                     exp_avg_sq = clone(optimizer.exp_avg_sq());

  for (auto& [name, parameter] : parameters) parameter.mutable_grad().fill_(std::numeric_limits<float>::quiet_NaN());
  optimizer.step(0.1, at::full({}, std::numeric_limits<float>::quiet_NaN()), kOverflow);
  expect_same_bits(parameters, values);
  expect_same_bits(optimizer.exp_avg(), exp_avg);
  expect_same_bits(optimizer.exp_avg_sq(), exp_avg_sq);
  EXPECT_EQ(optimizer.step_count().item<float>(), 1.0f);
}

TEST(AdamW, StateTravels) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  NamedTensors parameters = make_parameters(generator);
  AdamW optimizer(parameters, kOptions);
  draw_gradients(parameters, generator);
  optimizer.step(0.1, kOne, kFinite);

  NamedTensors copies = clone(parameters);
  AdamW other(copies, kOptions);
  other.load(clone(optimizer.exp_avg()), clone(optimizer.exp_avg_sq()), optimizer.step_count().clone());
  draw_gradients(parameters, generator);
  for (size_t i = 0; i < copies.size(); ++i) copies[i].second.mutable_grad() = parameters[i].second.grad().clone();
  optimizer.step(0.1, kOne, kFinite);
  other.step(0.1, kOne, kFinite);
  expect_same_bits(copies, parameters);
}

TEST(AdamW, RefusesStateOfAnotherModelAndMissingGradients) {
  at::Generator generator = at::detail::createCPUGenerator(4);
  NamedTensors parameters = make_parameters(generator);
  AdamW optimizer(parameters, kOptions);
  NamedTensors renamed = clone(optimizer.exp_avg());
  renamed[1].first = "other";
  EXPECT_THROW(optimizer.load(renamed, optimizer.exp_avg_sq(), at::zeros({})), c10::Error);
  EXPECT_THROW(optimizer.step(0.1, kOne, kFinite), c10::Error);
  draw_gradients(parameters, generator);
  EXPECT_EQ(optimizer.gradients().size(), 2u);
  optimizer.zero_grad();
  EXPECT_TRUE(optimizer.gradients().empty());
}

}  // namespace
}  // namespace gpt
