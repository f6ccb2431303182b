// The embedding with positions and dropout against ATen's in float64, on every device and with the CUDA kernels under emulation.
#include "gpt/ops/embedding.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "support/device_cases.h"
#include "support/dropout_at.h"
#include "support/emulated_kernels.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct EmbeddingShape {
  int64_t V, C, B, T;
};

// Rows that occur often, once and never; more than fill a chunk of the GPU's sums; widths of whole groups and others, and of more
// columns than a block takes; a vocabulary that one block of a GPU does not sort.
const EmbeddingShape kEmbeddingShapes[] = {{1, 1, 1, 1},     {50, 7, 3, 5},   {11, 200, 2, 33}, {2, 24, 5, 67},
                                           {30, 2056, 2, 2}, {3, 264, 4, 20}, {1100, 8, 4, 40}};

using test::exact;

class EmbeddingTest : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(GetParam());
    if (GetParam().is_emulated) emulated_.emplace();
  }
  at::Device device() const { return GetParam().device; }
  at::Tensor draw(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
    return at::randn(shape, generator_).to(device(), type);
  }
  // A parameter as a model has it: of 16 bits beside its float32 values, with gradients of float32.
  parameters::Parameter parameter(at::IntArrayRef shape, at::ScalarType type) {
    const at::Tensor value = draw(shape), rounded = type == at::kFloat ? at::Tensor() : value.to(type);
    return {value, rounded,
            c10::make_intrusive<parameters::FlatGradients>((value.numel() + 255) / 256 * 256, value.options()), 0};
  }
  at::Tensor draw_ids(const EmbeddingShape& s) {  // half of the rows do not occur
    return at::randint(std::max<int64_t>(1, s.V / 2), {s.B, s.T}, generator_, at::dtype(at::kLong));
  }
  static double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }

  at::Generator generator_ = at::detail::createCPUGenerator(1);
  std::optional<test::EmulatedKernels> emulated_;
};

// Two micro-batches, on top of what a tied head has contributed before, or on nothing.
TEST_P(EmbeddingTest, EqualsFloat64) {
  for (const auto& s : kEmbeddingShapes) {
    for (const auto type : kernel_types(GetParam())) {
      for (const bool has_positions : {false, true}) {
        for (const bool is_tied : {true, false}) {
          SCOPED_TRACE(testing::PrintToString(std::vector<int64_t>{s.V, s.C, s.B, s.T}) + c10::toString(type) +
                       (has_positions ? " with positions" : "") + (is_tied ? " tied" : ""));
          const parameters::Parameter table = parameter({s.V, s.C}, type),
                                      positions =
                                          has_positions ? parameter({s.T + 3, s.C}, type) : parameters::Parameter();
          const at::Tensor exact_table = exact(table.compute_value()).requires_grad_(),
                           exact_positions = (has_positions ? exact(positions.compute_value())
                                                            : at::zeros({s.T + 3, s.C}, at::kDouble))
                                                 .requires_grad_();
          table.gradient().fill_(1000);  // left by the update before
          if (has_positions) positions.gradient().fill_(1000);
          at::Tensor head = draw({s.V, s.C});
          if (is_tied) table.add_to_gradient(head);
          if (!is_tied) head.zero_();
          for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
            const at::Tensor ids = draw_ids(s), upstream = draw({s.B, s.T, s.C}, type);
            const at::Tensor x = embedding(ids.to(device()), table, positions),
                             expected = at::embedding(exact_table, ids) + exact_positions.narrow(0, 0, s.T);
            ASSERT_EQ(x.scalar_type(), type);
            EXPECT_LE(largest(exact(x) - expected.detach()),
                      has_positions ? test::unit_roundoff(type) * 2 * largest(expected.detach()) : 0);
            x.backward(upstream);
            expected.backward(exact(upstream));
          }
          const auto near = [&](const at::Tensor& gradient, const at::Tensor& expected, int64_t terms) {
            EXPECT_LE(largest(exact(gradient) - expected), test::tolerance(at::kFloat, terms + 1, largest(expected)));
          };
          near(table.gradient(), exact_table.grad() + exact(head), 2 * s.B * s.T);
          if (has_positions) near(positions.gradient(), exact_positions.grad(), 2 * s.B);
        }
      }
    }
  }
}

TEST_P(EmbeddingTest, PositionsBeginAnewWithEachDocument) {
  const EmbeddingShape s{20, 12, 2, 9};
  const at::Tensor starts = at::tensor({0, 0, 0, 3, 3, 5, 5, 5, 5, 0, 1, 1, 1, 1, 1, 1, 7, 7}, at::kInt).view({2, 9}),
                   places = (at::arange(9) - starts).to(at::kLong);
  for (const auto type : kernel_types(GetParam())) {
    for (const double probability : {0.0, 0.2}) {
      SCOPED_TRACE(testing::Message() << c10::toString(type) << ", dropout " << probability);
      const parameters::Parameter table = parameter({s.V, s.C}, type), positions = parameter({s.T, s.C}, type);
      const at::Tensor exact_table = exact(table.compute_value()).requires_grad_(),
                       exact_positions = exact(positions.compute_value()).requires_grad_();
      const at::Tensor ids = draw_ids(s), upstream = draw({s.B, s.T, s.C}, type);
      const DropoutSpec dropout = probability > 0 ? test::dropout_at(device(), probability, 3) : DropoutSpec();
      const parameters::Parameter ones(at::ones({s.V, s.C}, device()).to(type));
      const at::Tensor mask = exact(embedding(ids.to(device()), ones, {}, dropout));
      const at::Tensor x = embedding(ids.to(device()), table, positions, dropout, starts.to(device())),
                       expected = (at::embedding(exact_table, ids) + at::embedding(exact_positions, places)) * mask;
      EXPECT_LE(largest(exact(x) - expected.detach()), 4 * test::unit_roundoff(type) * largest(expected.detach()));
      x.backward(upstream);
      expected.backward(exact(upstream));
      const double rounded = probability > 0 && type != at::kFloat ? 2 * test::unit_roundoff(type) : 0;
      const auto near = [&](const at::Tensor& gradient, const at::Tensor& expected) {
        const double of_sums = test::tolerance(at::kFloat, s.B * s.T + 1, largest(expected));
        const double of_types = test::tolerance(gradient.scalar_type(), s.B * s.T + 1, largest(expected));
        EXPECT_LE(largest(exact(gradient) - expected), std::max(of_sums, of_types) + rounded * 4 * largest(expected));
      };
      near(table.gradient(), exact_table.grad());
      near(positions.gradient(), exact_positions.grad());
    }
  }
}

// Documents of one token each, all of which are at the first position.
TEST_P(EmbeddingTest, PositionsOfManyDocumentsAreRoundedOnce) {
  constexpr int64_t kTokens = 1000, kColumns = 8;
  const parameters::Parameter table(draw({3, kColumns}, at::kBFloat16)),
      positions(draw({kTokens, kColumns}, at::kBFloat16));
  const at::Tensor ids = at::zeros({1, kTokens}, at::dtype(at::kLong).device(device())),
                   starts = at::arange(kTokens, at::dtype(at::kInt).device(device())).unsqueeze(0),
                   upstream = draw({1, kTokens, kColumns}).abs().to(at::kBFloat16);
  embedding(ids, table, positions, {}, starts).backward(upstream);
  const at::Tensor gradient = exact(positions.gradient()), expected = exact(upstream).flatten(0, 1).sum(0);
  ASSERT_EQ(positions.gradient().scalar_type(), at::kBFloat16);
  EXPECT_LE(largest(gradient[0] - expected), test::unit_roundoff(at::kBFloat16) * largest(expected) +
                                                 test::tolerance(at::kFloat, kTokens, largest(expected)));
  EXPECT_EQ(largest(gradient.narrow(0, 1, kTokens - 1)), 0) << "nothing is at other positions";
}

// The gradient of a row is rounded once, however often the row occurs.
TEST_P(EmbeddingTest, ARoundedGradientIsThatOfFloat32Rounded) {
  for (const auto& s : kEmbeddingShapes) {
    const at::Tensor values = draw({s.V, s.C}, at::kBFloat16), of_positions = draw({s.T, s.C}, at::kBFloat16),
                     ids = draw_ids(s).to(device()), upstream = draw({s.B, s.T, s.C}, at::kBFloat16);
    const parameters::Parameter narrow(values), wide(values.to(at::kFloat)), narrow_positions(of_positions),
        wide_positions(of_positions.to(at::kFloat));
    embedding(ids, narrow, narrow_positions).backward(upstream);
    embedding(ids, wide, wide_positions).backward(upstream.to(at::kFloat));
    ASSERT_EQ(narrow.gradient().scalar_type(), at::kBFloat16);
    EXPECT_TRUE(narrow_positions.gradient().equal(wide_positions.gradient().to(at::kBFloat16)));
    if (GetParam().device.is_cpu() && !GetParam().is_emulated) {  // which sums in the order of the tokens either way
      EXPECT_TRUE(narrow.gradient().equal(wide.gradient().to(at::kBFloat16)));
    }
    const double once = test::unit_roundoff(at::kBFloat16) + test::tolerance(at::kFloat, s.B * s.T);
    EXPECT_LE(largest(exact(narrow.gradient()) - exact(wide.gradient())), once * largest(exact(wide.gradient())));
    const at::Tensor before = narrow.gradient().clone();
    embedding(ids, narrow).backward(at::zeros({s.B, s.T, s.C}, values.options()));
    EXPECT_TRUE(narrow.gradient().equal(before)) << "a further micro-batch adds to it";
  }
}

// With a table of ones the result is the mask, and what each token adds to the gradient is its upstream gradient times that.
TEST_P(EmbeddingTest, DropoutDrawsTheSameMaskInBothPasses) {
  constexpr int64_t kBatch = 12, kLength = 9, kColumns = 133;
  constexpr double kProbability = 0.2;
  const parameters::Parameter table(at::ones({1, kColumns}, device())),
      positions(at::zeros({kLength, kColumns}, device()));
  const at::Tensor ids = at::zeros({kBatch, kLength}, at::dtype(at::kLong).device(device())),
                   upstream = draw({kBatch, kLength, kColumns});
  const auto run = [&](int64_t key) {
    return embedding(ids, table, positions, test::dropout_at(device(), kProbability, key));
  };
  const at::Tensor x = run(1), mask = exact(x), kept = (mask != 0).to(at::kDouble);
  EXPECT_LE(largest(mask - kept / (1 - kProbability)), 1e-4);
  // Five standard deviations of a binomial distribution, of all elements, of each column and of each row.
  const double deviation = std::sqrt(kProbability * (1 - kProbability));
  const at::Tensor of_rows = kept.flatten(0, 1);
  EXPECT_NEAR(kept.mean().item<double>(), 1 - kProbability, 5 * deviation / std::sqrt(kept.numel()));
  EXPECT_LE(largest(of_rows.mean(0) - (1 - kProbability)), 5 * deviation / std::sqrt(kBatch * kLength));
  EXPECT_LE(largest(of_rows.mean(1) - (1 - kProbability)), 5 * deviation / std::sqrt(kColumns));
  x.backward(upstream);
  const at::Tensor masked = exact(upstream) * mask;
  EXPECT_LE(largest(exact(table.gradient()) - masked.flatten(0, 1).sum(0, true)),
            test::tolerance(at::kFloat, kBatch * kLength, largest(masked.abs().flatten(0, 1).sum(0))));
  EXPECT_LE(largest(exact(positions.gradient()) - masked.sum(0)),
            test::tolerance(at::kFloat, kBatch, largest(masked.abs().sum(0))));
  EXPECT_TRUE(run(1).equal(x));
  EXPECT_FALSE(run(2).equal(x));
}

TEST_P(EmbeddingTest, WithoutGradientsItGivesTheSame) {
  const parameters::Parameter table = parameter({20, 12}, at::kFloat), positions = parameter({9, 12}, at::kFloat);
  const at::Tensor ids = draw_ids({20, 12, 2, 5}).to(device()), with = embedding(ids, table, positions);
  const at::NoGradGuard no_grad;
  const at::Tensor without = embedding(ids, table, positions);
  EXPECT_TRUE(with.requires_grad());
  EXPECT_FALSE(without.requires_grad());
  EXPECT_TRUE(without.equal(with));
}

TEST_P(EmbeddingTest, RepeatingItGivesTheSameBits) {
  const EmbeddingShape s{3, 264, 16, 20};
  const at::Tensor values = draw({s.V, s.C}), ids = draw_ids(s).to(device()), upstream = draw({s.B, s.T, s.C});
  const int threads = at::get_num_threads();
  const auto gradient = [&](int count) {
    at::set_num_threads(count);
    const parameters::Parameter table(values.clone()), positions(values.new_zeros({s.T, s.C}));
    embedding(ids, table, positions, {0.1}).backward(upstream);
    at::set_num_threads(threads);
    return std::pair(table.gradient(), positions.gradient());
  };
  const auto one = gradient(1), two = gradient(2);
  EXPECT_TRUE(one.first.equal(two.first));
  EXPECT_TRUE(one.second.equal(two.second));
}

TEST_P(EmbeddingTest, RejectsWhatDoesNotFit) {
  const parameters::Parameter table(draw({5, 4})), positions(draw({3, 4}));
  const auto ids = [&](at::IntArrayRef shape) { return at::zeros(shape, at::dtype(at::kLong).device(device())); };
  EXPECT_NO_THROW((void)embedding(ids({2, 3}), table, positions));
  EXPECT_THROW((void)embedding(ids({2, 4}), table, positions), c10::Error);
  EXPECT_THROW((void)embedding(ids({2, 2}), table, parameters::Parameter(draw({3, 5}))), c10::Error);
  EXPECT_THROW((void)embedding(ids({4}), table), c10::Error);
  EXPECT_THROW((void)embedding(ids({2, 2}).to(at::kFloat), table), c10::Error);
  EXPECT_THROW((void)embedding(ids({2, 2}), table, {}, {1.0}), c10::Error);
  if (GetParam().device.is_cpu() && !GetParam().is_emulated) {
    EXPECT_THROW((void)embedding(ids({2, 2}) + 5, table), c10::Error);
    EXPECT_THROW((void)embedding(ids({2, 2}) - 1, table), c10::Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EmbeddingTest, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpt::ops
