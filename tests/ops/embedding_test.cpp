#include "gpt/ops/embedding.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
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

INSTANTIATE_ON_DEVICES(EmbeddingTest);

}  // namespace
}  // namespace gpt::ops
