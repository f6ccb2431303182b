// Products in 8 bits against whole numbers, and against float64 within what rounding to 8 bits explains.
#include "gpt/products/eight_bit_product.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

#include "gpt/simd/cpu_capability.h"
#include "src/products/eight_bit_aten.h"
#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

using cpu::Capability;

constexpr EightBitType kInt8 = EightBitType::int8, kFp8 = EightBitType::fp8;

// Those that this processor has, by ATen's own judgement.
std::vector<Capability> capabilities_for_int8() {
  std::vector<Capability> found{Capability::DEFAULT};
  if (__builtin_cpu_supports("avx2")) found.push_back(Capability::AVX2);
  if (cpu::capability() >= Capability::AVX512) found.push_back(Capability::AVX512);  // with VNNI where that is there
  return found;
}

struct Sizes {
  int64_t M, K, N;
};
void PrintTo(const Sizes& sizes, std::ostream* out) { *out << sizes.M << " x " << sizes.K << " x " << sizes.N; }

// One, few and many rows; neither K nor N is a multiple of what a kernel takes at once, or both are; a sum that 24 bits would not hold.
constexpr Sizes kSizes[] = {{1, 64, 128}, {1, 1, 1},     {3, 37, 5},     {8, 128, 48},    {9, 63, 49},
                            {17, 65, 16}, {67, 200, 33}, {130, 15, 258}, {300, 1024, 47}, {2, 5000, 3}};

// Whole numbers up to 127, which is in every row, so that they are their own codes, times a power of two, which differs from row to row.
struct WholeMatrix {
  at::Tensor codes, scales;  // (rows, columns) float64, (rows, 1) float64
  at::Tensor values() const { return codes * scales; }
};
WholeMatrix whole_matrix(int64_t rows, int64_t columns) {
  at::Tensor codes = at::randint(-127, 128, {rows, columns}).to(at::kDouble);
  codes.select(1, columns - 1).fill_(-127);
  const at::Tensor scales = at::pow(2.0, at::arange(rows).remainder(7) - 3).to(at::kDouble).unsqueeze(1);
  return {codes, scales};
}

TEST(EightBitProduct, IsExactInWholeNumbers) {
  at::manual_seed(1);
  for (const Capability capability : capabilities_for_int8()) {
    const cpu::WithCapability with(capability);
    for (const Sizes& sizes : kSizes) {
      const auto [M, K, N] = sizes;
      const WholeMatrix a = whole_matrix(M, K), b = whole_matrix(N, K);
      const at::Tensor sums = at::mm(a.codes, b.codes.t());  // below 2^53
      const at::Tensor reference = sums * a.scales * b.scales.t();
      const EightBitFactor first = first_factor(a.values().to(at::kFloat), kInt8),
                           second = second_factor(b.values().to(at::kFloat), kInt8);
      const at::Tensor result = eight_bit_product(first, second, {}, at::kFloat);
      ASSERT_EQ(result.sizes(), reference.sizes());
      // The scales are magnitudes / 127, and not powers of two: of those, of the sum and of their products.
      constexpr int kRoundings = 5;
      const at::Tensor error = (test::exact(result) - reference).abs(),
                       bound = kRoundings * test::unit_roundoff(at::kFloat) * reference.abs();
      EXPECT_TRUE((error <= bound).all().item<bool>())
          << testing::PrintToString(sizes) << ", capability " << static_cast<int>(capability);
    }
  }
}

// |ab - a'b'| <= |a| e_b + |b| e_a + e_a e_b, where a rounding moves a value by up to half a step, and by what the float32 around it adds.
at::Tensor bound_of(const at::Tensor& a, const at::Tensor& b) {
  const auto step = [](const at::Tensor& x) {
    return test::exact(x).abs().amax(1, /*keepdim=*/true) / 127 * (0.5 + 4 * 127 * test::unit_roundoff(at::kFloat));
  };
  const auto sums = [](const at::Tensor& x) { return test::exact(x).abs().sum(1, /*keepdim=*/true); };
  const at::Tensor of_a = step(a), of_b = step(b).t();
  return sums(a) * of_b + of_a * sums(b).t() + a.size(1) * of_a * of_b;
}

TEST(EightBitProduct, IsAsNearAsRoundingExplains) {
  at::manual_seed(2);
  for (const Capability capability : capabilities_for_int8()) {
    const cpu::WithCapability with(capability);
    for (const Sizes& sizes : kSizes) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const auto [M, K, N] = sizes;
        const at::Tensor a = at::randn({M, K}).to(type), b = at::randn({N, K}).to(type), bias = at::randn({N}).to(type);
        const at::Tensor reference = at::mm(test::exact(a), test::exact(b).t()) + test::exact(bias);
        const at::Tensor result = eight_bit_product(first_factor(a, kInt8), second_factor(b, kInt8), bias, type);
        EXPECT_EQ(result.scalar_type(), type);
        const at::Tensor error = (test::exact(result) - reference).abs(), of_codes = bound_of(a, b);
        const at::Tensor bound = of_codes + 2 * test::unit_roundoff(type) * (reference.abs() + of_codes + 1);
        EXPECT_TRUE((error <= bound).all().item<bool>()) << testing::PrintToString(sizes) << " " << type;
      }
    }
  }
}

TEST(EightBitProduct, AddsToWhatIsThere) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const EightBitFactor a = first_factor(at::randn({13, 40}).to(type), kInt8),
                         b = second_factor(at::randn({21, 40}).to(type), kInt8);
    const at::Tensor there = at::randn({13, 21}).to(type), written = there.clone(), added = there.clone();
    eight_bit_product_out(written, /*adds=*/false, a, b);
    eight_bit_product_out(added, /*adds=*/true, a, b);
    const at::Tensor product = eight_bit_product(a, b, {}, at::kFloat);
    EXPECT_TRUE(written.equal(product.to(type)));
    EXPECT_TRUE(added.equal((product + there.to(at::kFloat)).to(type)));
  }
}

TEST(EightBitProduct, IsTheSameForEveryOrderOfTheValuesAndNumberOfThreads) {
  at::manual_seed(4);
  const at::Tensor a = at::randn({333, 70}), b = at::randn({150, 70}), bias = at::randn({150});
  const auto product = [&](const at::Tensor& x, const at::Tensor& y) {
    return eight_bit_product(first_factor(x, kInt8), second_factor(y, kInt8), bias, at::kFloat);
  };
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = product(a, b);
  at::set_num_threads(3);
  const at::Tensor three = product(a, b), by_columns = product(a.t().contiguous().t(), b.t().contiguous().t());
  at::set_num_threads(before);
  EXPECT_TRUE(one.equal(three));
  EXPECT_TRUE(one.equal(by_columns));
}

TEST(EightBitProduct, KeepsWhatIsNotFiniteInItsRow) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  for (const Capability capability : capabilities_for_int8()) {
    const cpu::WithCapability with(capability);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const double value : {kInfinity, -kInfinity, kNan}) {
        const at::Tensor a = at::randn({10, 70}).to(type), b = at::randn({20, 70}).to(type);
        a[3][69] = value, b[17][0] = value;
        const at::Tensor is_nan =
            at::isnan(eight_bit_product(first_factor(a, kInt8), second_factor(b, kInt8), {}, type));
        EXPECT_TRUE(is_nan[3].all().item<bool>());
        EXPECT_TRUE(is_nan.select(1, 17).all().item<bool>());
        EXPECT_EQ(is_nan.sum().item<int64_t>(), 20 + 10 - 1);
      }
    }
  }
}

TEST(EightBitProduct, OfNothingOrAlmostNothingIsNothing) {
  for (const Capability capability : capabilities_for_int8()) {
    const cpu::WithCapability with(capability);
    for (const double value : {0.0, 1e-40}) {
      const at::Tensor a = at::full({9, 33}, value, at::kFloat), b = at::randn({17, 33});
      const EightBitFactor first = first_factor(a, kInt8), second = second_factor(b, kInt8);
      EXPECT_EQ(eight_bit_product(first, second, {}, at::kFloat).abs().max().item<float>(), 0);
    }
  }
}

// Without VNNI oneDNN adds pairs of products in 16 bits, which is not enough for all of them.
bool libtorch_adds_exactly() {
  const at::Tensor most = at::full({32, 32}, 127, at::kChar), least = at::full({32, 32}, -127, at::kChar);
  return at::_int_mm(most, most).eq(32 * 127 * 127).all().item<bool>() &&
         at::_int_mm(most, least).eq(-32 * 127 * 127).all().item<bool>();
}

TEST(EightBitProduct, HasTheSameCodesByTheOperatorsOfLibTorch) {
  at::manual_seed(5);
  const bool has_product = libtorch_adds_exactly();
  for (const Sizes& sizes : kSizes) {
    const auto [M, K, N] = sizes;
    const at::Tensor a = whole_matrix(M, K).values().to(at::kFloat), b = whole_matrix(N, K).values().to(at::kFloat),
                     bias = at::randn({N});
    const EightBitFactor first = eight_bit_factor_by_aten(a, kInt8), second = eight_bit_factor_by_aten(b, kInt8);
    const at::Tensor sums = at::mm(test::exact(first.codes), test::exact(second.codes).t()),
                     exact = sums * test::exact(first.scales).unsqueeze(1) * test::exact(second.scales) + bias;
    const at::Tensor bound = 8 * test::unit_roundoff(at::kFloat) * (exact.abs() + 2 * bias.abs());
    const auto expect_near = [&](const at::Tensor& result) {
      EXPECT_TRUE(((result - exact).abs() <= bound).all().item<bool>()) << testing::PrintToString(sizes);
    };
    expect_near(eight_bit_product(first_factor(a, kInt8), second_factor(b, kInt8), bias, at::kFloat));
    if (has_product) expect_near(eight_bit_product_by_aten(first, second, bias, at::kFloat));
  }
  const at::Tensor nan = at::full({3, 5}, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(at::isnan(eight_bit_factor_by_aten(nan, kInt8).scales).all().item<bool>());
}

TEST(EightBitProduct, HasTheNearestNumbersOfFp8) {
  at::manual_seed(6);
  const at::Tensor values = at::randn({7, 50}).to(at::kBFloat16);
  const EightBitFactor factor = eight_bit_factor_by_aten(values, kFp8);
  const at::Tensor scales = test::exact(factor.scales).unsqueeze(1),
                   rounded = test::exact(factor.codes.narrow(1, 0, 50)) * scales;
  // E4M3 has three bits behind the point, and below 2^-6 a step of 2^-9.
  const at::Tensor bound = at::maximum(test::exact(values).abs() * std::ldexp(1, -4), scales * std::ldexp(1, -10)) *
                           (1 + 8 * test::unit_roundoff(at::kFloat));
  EXPECT_TRUE(((rounded - test::exact(values)).abs() <= bound).all().item<bool>());
  EXPECT_EQ(test::exact(factor.codes).abs().amax(1).min().item<double>(), 448);
}

TEST(EightBitProduct, NamesWhatTheDeviceLacks) {
  const device::DeviceInfo cpu;
  EXPECT_EQ(eight_bit_obstacle(kInt8, cpu), "");
  EXPECT_EQ(eight_bit_obstacle(kFp8, cpu), "needs a GPU, and the run is on a CPU");
  const device::DeviceInfo ampere{.device = at::Device(at::kCUDA, 0),
                                  .name = "A100",
                                  .compute_major = 8,
                                  .compute_minor = 0};
  EXPECT_EQ(eight_bit_obstacle(kInt8, ampere), "");
  EXPECT_EQ(eight_bit_obstacle(kFp8, ampere), "needs a GPU of compute capability 9.0, and A100 has 8.0");
}

class EightBitProductOnAGpu : public testing::TestWithParam<DeviceCase> {};
INSTANTIATE_TEST_SUITE_P(, EightBitProductOnAGpu, testing::Values(kDevices[1]), [](const auto&) { return "cuda"; });

TEST_P(EightBitProductOnAGpu, IsAsNearAsRoundingExplains) {
  GPT_SKIP_WITHOUT(GetParam());
  at::manual_seed(7);
  for (const EightBitType type : {kInt8, kFp8}) {
    if (!eight_bit_obstacle(type, device::describe_device(GetParam().device)).empty()) continue;
    for (const Sizes& sizes : kSizes) {
      const auto [M, K, N] = sizes;
      const auto on_gpu = [&](at::IntArrayRef shape) {
        return at::randn(shape).to(GetParam().device).to(at::kBFloat16);
      };
      const at::Tensor a = on_gpu({M, K}), b = on_gpu({N, K}), bias = on_gpu({N});
      const at::Tensor result = eight_bit_product(first_factor(a, type), second_factor(b, type), bias, at::kBFloat16);
      const at::Tensor exact_a = test::exact(a), exact_b = test::exact(b);
      const at::Tensor reference = at::mm(exact_a, exact_b.t()) + test::exact(bias);
      // A rounding to fp8 moves a value by up to a sixteenth of it.
      const at::Tensor magnitudes = at::mm(exact_a.abs(), exact_b.abs().t());
      const at::Tensor of_codes = type == kInt8 ? bound_of(a, b) : magnitudes * 0.14 + 0.01;
      const at::Tensor bound = of_codes + 4 * test::unit_roundoff(at::kBFloat16) * (reference.abs() + of_codes + 1);
      EXPECT_TRUE(((test::exact(result) - reference).abs() <= bound).all().item<bool>())
          << testing::PrintToString(sizes) << (type == kInt8 ? " int8" : " fp8");
    }
  }
}

}  // namespace
}  // namespace gpt::ops
