#include "gpt/ops/embedding.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

class EmbeddingTest : public DeviceTest {};

// Rows that occur often, once and never; two micro-batches, on top of what a tied head has contributed before, or on nothing.
TEST_P(EmbeddingTest, EqualsFloat64) {
  for (const bool is_tied : {true, false}) {
    for (const auto& [V, C, B, T] :
         std::vector<std::array<int64_t, 4>>{{50, 7, 3, 5}, {11, 200, 4, 33}, {1, 1, 1, 1}}) {
      at::Generator generator = at::detail::createCPUGenerator(1);
      const at::Tensor values = at::randn({V, C}, generator), exact = values.to(at::kDouble).requires_grad_();
      const Parameter table(values.to(device(), /*non_blocking=*/false, /*copy=*/true));
      table.add_to_gradient(at::randn({V, C}, generator).to(device()));  // of the update before
      table.clear_gradient();
      at::Tensor head = at::randn({V, C}, generator).to(at::kDouble);
      if (is_tied) table.add_to_gradient(head.to(device()));
      if (!is_tied) head.zero_();
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        const at::Tensor ids = at::randint(std::max<int64_t>(1, V / 2), {B, T}, generator, at::dtype(at::kLong));
        const at::Tensor x = embedding(ids.to(device()), table), upstream = at::randn({B, T, C}, generator);
        EXPECT_TRUE(x.detach().cpu().equal(at::embedding(values, ids)));
        x.backward(upstream.to(device()));
        at::embedding(exact, ids).backward(upstream.to(at::kDouble));
      }
      const at::Tensor expected = exact.grad() + head;
      EXPECT_LE((table.gradient().cpu() - expected).abs().max().item<double>(),
                test::tolerance(at::kFloat, 2 * B * T + 1, expected.abs().max().item<double>()));
    }
  }
}

// On a CPU the gradient of a row is rounded once, however often the row occurs.
TEST_P(EmbeddingTest, ARoundedGradientIsThatOfFloat32Rounded) {
  for (const auto& [V, C, B, T] : std::vector<std::array<int64_t, 4>>{{50, 7, 3, 5}, {11, 200, 4, 33}, {1, 1, 1, 1}}) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    const at::Tensor values = at::randn({V, C}, generator).to(device(), at::kBFloat16),
                     ids = at::randint(std::max<int64_t>(1, V / 2), {B, T}, generator, at::dtype(at::kLong)),
                     upstream = at::randn({B, T, C}, generator).to(at::kBFloat16);
    const Parameter narrow(values), wide(values.to(at::kFloat));
    embedding(ids.to(device()), narrow).backward(upstream.to(device()));
    embedding(ids.to(device()), wide).backward(upstream.to(device(), at::kFloat));
    ASSERT_EQ(narrow.gradient().scalar_type(), at::kBFloat16);
    const at::Tensor expected = wide.gradient();
    if (device().is_cpu()) {
      EXPECT_TRUE(narrow.gradient().equal(expected.to(at::kBFloat16)));
    } else {
      EXPECT_LE((narrow.gradient().to(at::kFloat) - expected).abs().max().item<double>(),
                test::tolerance(at::kBFloat16, 4, expected.abs().max().item<double>()));
    }
    const at::Tensor before = narrow.gradient().clone();
    embedding(ids.to(device()), narrow).backward(at::zeros({B, T, C}, values.options()));
    EXPECT_TRUE(narrow.gradient().equal(before)) << "a further micro-batch adds to it";
  }
}

INSTANTIATE_ON_DEVICES(EmbeddingTest);

}  // namespace
}  // namespace gpt::ops
