// Weights of 8 and 4 bits: how they are rounded, and their products against float64.
#include "gpt/products/quantized_product.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

#include "gpt/simd/cpu_capability.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

using cpu::Capability;

constexpr parameters::QuantizedType kTypes[] = {parameters::QuantizedType::int8, parameters::QuantizedType::int4};

// Those that this processor has, by ATen's own judgement.
std::vector<Capability> capabilities() {
  std::vector<Capability> found{Capability::DEFAULT};
  if (__builtin_cpu_supports("avx2")) found.push_back(Capability::AVX2);
  if (cpu::capability() >= Capability::AVX512) found.push_back(Capability::AVX512);  // with VNNI where that is there
  return found;
}

// The largest magnitude of each group of so many columns, for each of them: of the shape of x.
at::Tensor largest_of_group(const at::Tensor& x, int64_t size) {
  at::Tensor result = at::zeros(x.sizes(), at::kDouble);
  for (int64_t begin = 0; begin < x.size(1); begin += size) {
    const int64_t count = std::min(size, x.size(1) - begin);
    result.narrow(1, begin, count).copy_(test::exact(x).narrow(1, begin, count).abs().amax(1, /*keepdim=*/true));
  }
  return result;
}

constexpr int64_t kOfX = 32, kOfWeight = 64;  // sizes of groups

struct ProductSizes {
  int64_t M, K, N;
};
void PrintTo(const ProductSizes& sizes, std::ostream* out) { *out << sizes.M << " x " << sizes.K << " x " << sizes.N; }

// One, few and many rows; neither K nor N is a multiple of what a kernel takes at once, or both are.
constexpr ProductSizes kProductSizes[] = {{1, 64, 128}, {1, 37, 5},   {2, 768, 31}, {3, 100, 64},  {5, 33, 9},
                                          {7, 128, 16}, {8, 15, 258}, {4, 1, 1},    {13, 200, 47}, {300, 1024, 33}};

TEST(QuantizedWeight, HasTheNearestCodesForTheLargestMagnitudeOfAGroup) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor weight = at::randn({19, 131}).to(type), exact = test::exact(weight);
    const parameters::QuantizedWeight quantized = parameters::quantize(weight, parameters::QuantizedType::int8);
    for (int64_t row = 0; row < 19; ++row) {
      for (int64_t begin = 0; begin < 131; begin += 64) {
        const int64_t end = std::min<int64_t>(131, begin + 64);
        const double scale = exact[row].slice(0, begin, end).abs().max().item<double>() / 127;
        EXPECT_NEAR(quantized.scales[row][begin / 64].item<double>(), scale, test::tolerance(at::kFloat, 1, scale));
        int largest = 0;
        for (int64_t k = begin; k < end; ++k) {
          const int code = quantized.codes[row][k].item<int8_t>();
          // Half a step, and what the quotient's two roundings may move it: at most 127 units.
          EXPECT_LE(std::abs(exact[row][k].item<double>() / scale - code),
                    0.5 + 2 * 127 * test::unit_roundoff(at::kFloat));
          largest = std::max(largest, std::abs(code));
        }
        EXPECT_EQ(largest, 127);
      }
    }
    EXPECT_EQ(quantized.bytes(), 19 * (131 + 3 * 4));
  }
}

TEST(QuantizedWeight, KeepsZerosAndTheSmallestNumbers) {
  at::Tensor weight = at::zeros({3, 10});
  weight[1][4] = std::numeric_limits<float>::denorm_min();
  weight[2][0] = -5;
  for (const parameters::QuantizedType type : kTypes) {
    const at::Tensor result = parameters::dequantize(parameters::quantize(weight, type));
    EXPECT_TRUE(result[0].equal(weight[0])) << name_of(type);
    EXPECT_LE((result[1] - weight[1]).abs().max().item<float>(), std::numeric_limits<float>::denorm_min());
    EXPECT_LE((result[2] - weight[2]).abs().max().item<float>(), 0.02F) << name_of(type);  // bfloat16 has 8 bits of 5
  }
}

// Sixteen codes from the least to the largest weight of each group, by their definition.
at::Tensor evenly_divided(const at::Tensor& weight) {
  const at::Tensor exact = test::exact(weight);
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < weight.size(1); begin += 64) {
    const at::Tensor group = exact.narrow(1, begin, std::min<int64_t>(64, weight.size(1) - begin));
    const at::Tensor least = group.amin(1, true), step = ((group.amax(1, true) - least) / 15).clamp_min(1e-30);
    parts.push_back(((group - least) / step).round() * step + least);
  }
  return at::cat(parts, 1);
}

TEST(QuantizedWeight, FindsBetterLinesForFourBitsThanLeastToLargest) {
  at::manual_seed(2);
  for (const int64_t columns : {64, 100, 129, 448}) {
    const at::Tensor weight = at::randn({50, columns}), exact = test::exact(weight);
    const parameters::QuantizedWeight quantized = parameters::quantize(weight, parameters::QuantizedType::int4);
    const at::Tensor error = test::exact(parameters::dequantize(quantized)) - exact;
    const double squares = (error * error).sum().item<double>();
    const at::Tensor even = evenly_divided(weight) - exact;
    EXPECT_LT(squares, 0.95 * (even * even).sum().item<double>()) << columns;
    // No code is further than half a step from its weight, except those at both ends, and the roundings of what bfloat16 holds exactly.
    for (int64_t row = 0; row < 50; ++row) {
      for (int64_t k = 0; k < columns; ++k) {
        const double step = quantized.scales[row][k / 64].item<double>();
        const int code = quantized.codes[row][k / 2].item<uint8_t>() >> (k % 2 ? 4 : 0) & 15;
        if (code > 0 && code < 15) { EXPECT_LE(std::abs(error[row][k].item<double>()), step * (0.5 + 1e-5)); }
      }
    }
    const int64_t groups = (columns + 63) / 64;
    EXPECT_EQ(quantized.bytes(), 50 * ((columns + 1) / 2 + 4 * groups));
  }
}

TEST(QuantizedWeight, IsTheSameForEveryNumberOfThreads) {
  at::manual_seed(3);
  const at::Tensor weight = at::randn({700, 320});
  const int threads = at::get_num_threads();
  for (const parameters::QuantizedType type : kTypes) {
    at::set_num_threads(1);
    const parameters::QuantizedWeight one = parameters::quantize(weight, type);
    at::set_num_threads(3);
    const parameters::QuantizedWeight three = parameters::quantize(weight, type);
    at::set_num_threads(threads);
    EXPECT_TRUE(one.codes.equal(three.codes) && one.scales.equal(three.scales)) << name_of(type);
  }
}

class QuantizedProduct : public testing::TestWithParam<parameters::QuantizedType> {};

// What a kernel may differ from float64 by: the rounding of x, half a step of its group, and float32's roundings of each group's sum.
TEST_P(QuantizedProduct, IsTheFloat64ProductOfWhatTheCodesStandFor) {
  at::manual_seed(4);
  for (const Capability capability : capabilities()) {
    const cpu::WithCapability scope(capability);
    for (const ProductSizes& sizes : kProductSizes) {
      const auto& [M, K, N] = sizes;
      for (const bool has_bias : {false, true}) {
        const at::Tensor x = at::randn({M, K}) * at::randn({M, 1}).exp(), bias = at::randn({N});
        const parameters::QuantizedWeight weight = parameters::quantize(at::randn({N, K}), GetParam());
        const at::Tensor wide = test::exact(parameters::dequantize(weight));  // (N, K)
        const at::Tensor y = quantized_product(x, pack(weight), has_bias ? bias : at::Tensor());
        at::Tensor expected = test::exact(x).matmul(wide.t());
        if (has_bias) expected = expected + test::exact(bias);
        const at::Tensor of_x = (largest_of_group(x, kOfX) / 127 / 2).matmul(wide.abs().t());
        // The magnitude of a group's codes, of which int4 adds two parts that may cancel: 15 steps at most beside what they stand for.
        const at::Tensor magnitude = largest_of_group(x, kOfX).matmul(largest_of_group(wide, kOfWeight).t() * 2) + 3;
        const int64_t roundings = 4 * ((K + 31) / 32) + 4;
        const at::Tensor bound = of_x * (1 + 1e-5) + test::tolerance(at::kFloat, roundings) * magnitude;
        EXPECT_TRUE(((y - expected).abs() <= bound).all().item<bool>())
            << testing::PrintToString(sizes) << ", capability " << static_cast<int>(capability) << ", at most "
            << ((y - expected).abs() / bound).max().item<double>() << " of the bound";
      }
    }
  }
}

// Without the rounding of x there is nothing but float32's: so a term that is left out, or a sum that overflows, shows.
TEST_P(QuantizedProduct, IsExactWhereXIsWholeNumbers) {
  at::manual_seed(5);
  for (const Capability capability : capabilities()) {
    const cpu::WithCapability scope(capability);
    for (const ProductSizes& sizes : kProductSizes) {
      const auto& [M, K, N] = sizes;
      at::Tensor x = at::randint(-127, 128, {M, K}).to(at::kFloat);
      for (int64_t begin = 0; begin < K; begin += kOfX) x.select(1, begin).fill_(127);  // each group's scale is 1
      const at::Tensor extreme = at::randint(0, 2, {N, K}).to(at::kFloat) * 254 - 127;  // the largest products
      const parameters::QuantizedWeight weight = parameters::quantize(extreme, GetParam());
      const at::Tensor y = quantized_product(x, pack(weight));
      const at::Tensor expected = test::exact(x).matmul(test::exact(parameters::dequantize(weight)).t());
      const double bound = test::tolerance(at::kFloat, 4 * ((K + 31) / 32) + 2, 127.0 * 127 * 2 * K);
      EXPECT_LE((y - expected).abs().max().item<double>(), bound)
          << testing::PrintToString(sizes) << ", capability " << static_cast<int>(capability);
    }
  }
}

TEST_P(QuantizedProduct, IsTheSameForEveryNumberOfThreadsAndRows) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({40, 512});
  const PackedWeight weight = pack(parameters::quantize(at::randn({3000, 512}), GetParam()));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = quantized_product(x, weight);
  at::set_num_threads(3);
  const at::Tensor three = quantized_product(x, weight);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(three));
  // The product of one row and that of all: each sum of 32 is exact, and a row's groups are added in their order.
  const double bound = test::tolerance(at::kFloat, 32, one.abs().max().item<double>() * 8);
  EXPECT_LE((quantized_product(x.narrow(0, 7, 1), weight) - one[7]).abs().max().item<double>(), bound);
}

TEST_P(QuantizedProduct, ShowsWhatIsNotFinite) {
  const PackedWeight weight = pack(parameters::quantize(at::randn({20, 130}), GetParam()));
  for (const Capability capability : capabilities()) {
    const cpu::WithCapability scope(capability);
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      at::Tensor x = at::randn({3, 130});
      x[1][129] = value;
      const at::Tensor y = quantized_product(x, weight);
      EXPECT_TRUE(y[1].isnan().all().item<bool>());
      EXPECT_TRUE(y[0].isfinite().all().item<bool>() && y[2].isfinite().all().item<bool>());
    }
    EXPECT_TRUE(quantized_product(at::zeros({1, 130}), weight).equal(at::zeros({1, 20})));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedProduct, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(QuantizedProduct, GivesRowsOfAnEmbedding) {
  at::manual_seed(7);
  const parameters::QuantizedWeight weight = parameters::quantize(at::randn({37, 50}), parameters::QuantizedType::int8);
  const at::Tensor ids = at::randint(0, 37, {11}, at::kLong);
  EXPECT_TRUE(rows_of(pack(weight), ids).equal(parameters::dequantize(weight).index_select(0, ids)));
  EXPECT_THROW((void)rows_of(pack(weight), at::full({1}, 37, at::kLong)), c10::Error);
  EXPECT_THROW((void)rows_of(pack(weight), at::full({1}, -1, at::kLong)), c10::Error);
}

TEST(QuantizedProduct, RefusesWhatDoesNotFit) {
  const PackedWeight weight = pack(parameters::quantize(at::randn({4, 8}), parameters::QuantizedType::int8));
  EXPECT_THROW((void)quantized_product(at::randn({1, 7}), weight), c10::Error);
  EXPECT_THROW((void)quantized_product(at::randn({1, 8}).to(at::kBFloat16), weight), c10::Error);
  EXPECT_THROW((void)quantized_product(at::randn({1, 8}), weight, at::randn({3})), c10::Error);
  EXPECT_THROW((void)parameters::quantize(at::randn({8}), parameters::QuantizedType::int8), c10::Error);
}

}  // namespace
}  // namespace gpt::ops
