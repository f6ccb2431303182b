#include "gpt/model/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "gpt/device/precision.h"

namespace gpt::model {
namespace {

TEST(Recompute, RunsTheBodyAgainWithTheSameRandomNumbersAndAutocast) {
  const at::Tensor weight = at::randn({4, 4}).requires_grad_();
  const at::Tensor x = at::randn({3, 4}).requires_grad_(), x2 = at::randn({3, 4}).requires_grad_();
  std::vector<at::Tensor> noise;
  std::vector<at::ScalarType> types;
  std::vector<BodyRun> runs;
  const auto body = [&](const std::vector<at::Tensor>& inputs, BodyRun run) {
    runs.push_back(run);
    const at::Tensor y = at::linear(inputs[0] + inputs[1].square(), weight);
    noise.push_back(at::rand_like(y, at::kFloat));
    types.push_back(y.scalar_type());
    return y.to(at::kFloat) * noise.back();
  };
  at::Tensor y;
  {
    device::Autocast autocast(at::kCPU, at::kBFloat16);
    y = recompute_in_backward(body, {x, x2}, /*draws=*/true);
  }
  ASSERT_EQ(noise.size(), 1u);
  const at::Tensor before_backward = at::detail::getDefaultCPUGenerator().get_state();
  y.sum().backward();
  ASSERT_EQ(runs, (std::vector<BodyRun>{BodyRun::first, BodyRun::again})) << "the body runs again in backward";
  EXPECT_TRUE(noise[0].equal(noise[1]));
  EXPECT_EQ(types, (std::vector<at::ScalarType>(2, at::kBFloat16)));
  EXPECT_TRUE(at::detail::getDefaultCPUGenerator().get_state().equal(before_backward))
      << "backward draws nothing of its own";

  const std::vector<at::Tensor> recomputed{x.grad().clone(), x2.grad().clone(), weight.grad().clone()};
  for (const at::Tensor& leaf : {x, x2, weight}) leaf.mutable_grad().reset();
  {
    device::Autocast autocast(at::kCPU, at::kBFloat16);
    y = at::linear(x + x2.square(), weight).to(at::kFloat) * noise[0];
  }
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(recomputed[0]));
  EXPECT_TRUE(x2.grad().equal(recomputed[1]));
  EXPECT_TRUE(weight.grad().equal(recomputed[2]));
}

}  // namespace
}  // namespace gpt::model
