#include "gpt/optim/newton_schulz.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "optim/newton_schulz_reference.h"
#include "support/device_cases.h"

namespace gpt::optim {
namespace {

class NewtonSchulzTest : public DeviceTest {
 protected:
  // A matrix of orthogonal columns, or rows, times singular values from 1 to 3, so that rounding errors do not grow much on their way to 1.
  at::Tensor matrix(int64_t rows, int64_t columns) {
    const int64_t rank = std::min(rows, columns);
    const auto orthogonal = [&](int64_t size) {
      return std::get<0>(at::linalg_qr(at::randn({size, rank}, generator_, at::kDouble)));
    };
    return orthogonal(rows).mm(at::diag(at::linspace(1, 3, rank, at::kDouble))).mm(orthogonal(columns).t());
  }

  bool by_squares(at::ScalarType type) const { return device().is_cpu() && type == at::kFloat; }

  at::Generator generator_ = at::detail::createCPUGenerator(5);
};

at::Tensor orthogonalized(const at::Tensor& x, double times = 1) {
  const at::Tensor to = at::full_like(x, 7);
  orthogonalize({{.from = x, .to = to, .times = times}});
  return to;
}

TEST_P(NewtonSchulzTest, IsThatOfFloat64OnTallWideAndSquareMatrices) {
  const std::pair<int64_t, int64_t> shapes[] = {{96, 32}, {32, 96}, {40, 40},   {1, 19},
                                                {19, 1},  {33, 35}, {130, 520}, {300, 210}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [rows, columns] : shapes) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns << " " << type);
      const at::Tensor x = matrix(rows, columns).to(device(), type);
      const at::Tensor found = orthogonalized(x);
      EXPECT_EQ(found.scalar_type(), type);
      EXPECT_EQ(found.sizes(), x.sizes());
      const auto [expected, error] = test::orthogonalized_exactly(test::exact(x), type, /*error=*/0, by_squares(type));
      const double difference = (test::exact(found) - expected).norm().item<double>();
      EXPECT_LE(difference, error);
      const double size = expected.norm().item<double>();
      EXPECT_LT(error, (type == at::kFloat ? 0.001 : 0.5) * size) << "the bound says something";
    }
  }
}

TEST_P(NewtonSchulzTest, SeveralAreThoseOfEachAloneToTheBit) {
  const int threads = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<Orthogonalization> all;
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{96, 32}, {7, 300}, {300, 300}, {50, 49}}) {
      const at::Tensor x = matrix(rows, columns).to(device(), type);
      all.push_back({.from = x, .to = at::empty_like(x), .times = 0.75});
    }
    for (const int count : {1, 2, 5}) {
      at::set_num_threads(count);
      for (const Orthogonalization& one : all) one.to.zero_();
      orthogonalize(all);
      for (const auto& [x, to, times] : all) EXPECT_TRUE(to.equal(orthogonalized(x, times))) << x.sizes();
    }
    at::set_num_threads(threads);
  }
}

// What the coefficients are chosen for.
TEST_P(NewtonSchulzTest, SingularValuesComeNearOne) {
  const at::Tensor x = at::randn({48, 96}, generator_).to(device());
  const at::Tensor values = at::linalg_svdvals(test::exact(orthogonalized(x)));
  EXPECT_GT(values.min().item<double>(), 0.65);
  EXPECT_LT(values.max().item<double>(), 1.25);
}

TEST_P(NewtonSchulzTest, ScaleDoesNotMatterAndZeroStaysZero) {
  const at::Tensor x = at::randn({24, 40}, generator_).to(device()), y = orthogonalized(x);
  for (const double scale : {0x1p-10, 0x1p40}) EXPECT_TRUE(orthogonalized(x * scale).equal(y)) << scale;
  EXPECT_TRUE(orthogonalized(at::zeros({3, 5}, x.options())).equal(at::zeros({3, 5}, x.options())));
  EXPECT_TRUE(orthogonalized(x * 1e30).isfinite().all().item<bool>()) << "its square is too large for float32";
}

TEST_P(NewtonSchulzTest, TakesNoFloat16) { EXPECT_THROW((void)orthogonalized(full({2, 3}, 1, at::kHalf)), c10::Error); }

TEST(NewtonSchulz, ItsOperationsAreThoseOfTheProducts) {
  // 15 products: five of (2, 3) times (3, 2), of (2, 2) times (2, 2), and of (2, 2) times (2, 3).
  EXPECT_EQ(newton_schulz_flops(2, 3), 5 * 2 * (12 + 8 + 12));
  EXPECT_EQ(newton_schulz_flops(3, 2), newton_schulz_flops(2, 3));
  // Halves of (2, 3) times (3, 2) and of 5 F, 4 P and 4 times two for G, and a product of (2, 2) with (2, 3).
  EXPECT_EQ(least_newton_schulz_flops(2, 3), 12 + 17 * 8 + 2 * 12);
  EXPECT_EQ(least_newton_schulz_flops(3, 2), least_newton_schulz_flops(2, 3));
}

INSTANTIATE_ON_DEVICES(NewtonSchulzTest);

}  // namespace
}  // namespace gpt::optim
