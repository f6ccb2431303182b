#include "gpt/ops/mapped.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "gpt/ops/linear.h"
#include "gpt/ops/norm.h"

namespace gpt::ops {
namespace {

at::Tensor values(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::dtype(at::kFloat));
}

// Turns the order of rows round, as a process would that sends them to others.
LinearMap turned_round(int& maps) {
  const auto flip = [&maps](const at::Tensor& x) {
    ++maps;
    return x.flip(0);
  };
  return {.forward = flip, .backward = [](const at::Tensor& gradient) { return gradient.flip(0); }};
}

struct Gradients {
  at::Tensor x, weight;
  int maps = 0;
};

Gradients gradients_with(ProductInput input) {
  const Normalization norm{Norm::layernorm, 1e-5, parameters::Parameter(values({8}, 1)),
                           parameters::Parameter(values({8}, 2))};
  const parameters::Parameter weight(values({5, 8}, 3));
  const at::Tensor x = values({4, 8}, 4).requires_grad_();
  Gradients result;
  const at::Tensor y = mapped(add_norm(norm, x).normed, turned_round(result.maps));
  linear(y, weight, /*bias=*/{}, input).backward(values({4, 5}, 5));
  result.x = x.grad(), result.weight = weight.gradient();
  return result;
}

TEST(Mapped, AProductMapsAgainWhatIsComputedAgain) {
  const Gradients kept = gradients_with(ProductInput::keep), again = gradients_with(ProductInput::repeat);
  EXPECT_EQ(kept.maps, 1);
  EXPECT_EQ(again.maps, 2);
  EXPECT_TRUE(again.x.equal(kept.x));
  EXPECT_TRUE(again.weight.equal(kept.weight));
}

TEST(Mapped, GradientsGoTheOtherWay) {
  const at::Tensor x = values({4, 3}, 1).requires_grad_(), gradient = values({4, 3}, 2);
  int maps = 0;
  const at::Tensor y = mapped(x, turned_round(maps));
  EXPECT_TRUE(y.equal(x.flip(0)));
  y.backward(gradient);
  EXPECT_TRUE(x.grad().equal(gradient.flip(0)));
}

TEST(Mapped, WhatElseIsTrainedGetsItsGradientThoughTheInputNeedsNone) {
  const parameters::Parameter bias(at::zeros({3}));
  const LinearMap map{.forward = [](const at::Tensor& x) { return x + 0; },
                      .backward =
                          [bias](const at::Tensor& gradient) {
                            bias.add_to_gradient(gradient.sum(0));
                            return gradient;
                          }};
  mapped(values({4, 3}, 1), map, bias.value()).backward(at::ones({4, 3}));
  EXPECT_TRUE(bias.gradient().equal(at::ones({3}) * 4));
}

}  // namespace
}  // namespace gpt::ops
