#include "gpt/ops/attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <ostream>
#include <random>
#include <tuple>
#include <vector>

#include "gpt/device/cpu_bfloat16.h"
#include "gpt/device/random_state.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/simd/cpu_capability.h"
#include "gpt/simd/philox.h"
#include "support/device_cases.h"
#include "support/dropout_at.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct AttentionCase {
  int64_t B, T, H, KV, D;
  bool rope = false;
  int64_t window = 0;
  int64_t document = 0;  // documents have 1 to 2 document - 1 tokens, others in each sequence; 0: a sequence is one

  // (B, T) int32
  at::Tensor document_starts() const {
    at::Tensor starts = at::zeros({B, T}, at::kInt);
    std::mt19937 random(static_cast<unsigned>(T + document));
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t t = 0; t < T;) {
        const int64_t length = std::min<int64_t>(T - t, 1 + static_cast<int64_t>(random() % (2 * document - 1)));
        starts[b].narrow(0, t, length).fill_(t);
        t += length;
      }
    }
    return starts;
  }
  AttentionSpec spec(const DropoutSpec& dropout = {}, at::Device device = at::kCPU) const {
    return {.heads = H,
            .kv_heads = KV,
            .dropout = dropout,
            .window = window,
            .document_starts = document > 0 ? document_starts().to(device) : at::Tensor()};
  }
  // (B, 1, T, T) bool: which keys each query does not see.
  at::Tensor hidden() const {
    const at::Tensor positions = at::arange(T), query = positions.unsqueeze(1), key = positions.unsqueeze(0);
    at::Tensor result = (key > query).expand({B, 1, T, T});
    if (window > 0) result = result.logical_or(key <= query - window);
    if (document == 0) return result;
    const at::Tensor number = (document_starts() == positions).cumsum(1);  // of the document
    return result.logical_or((number.unsqueeze(1) != number.unsqueeze(2)).unsqueeze(1));
  }
  int64_t width() const { return (H + 2 * KV) * D; }
  RotaryTables tables(at::Device device) const { return rope ? rotary_tables(T, D, 10000.0, device) : RotaryTables{}; }
};

// 2 x 65, 4 and 2 heads of 20 rotated
void PrintTo(const AttentionCase& c, std::ostream* out) {
  *out << c.B << " x " << c.T << ", " << c.H << " and " << c.KV << " heads of " << c.D << (c.rope ? " rotated" : "");
  if (c.window > 0) *out << ", window " << c.window;
  if (c.document > 0) *out << ", documents of " << c.document;
}

// One position; less than a vector and than a block; whole blocks; blocks and a rest; several parts for one sequence.
const AttentionCase kAttentionCases[] = {{1, 1, 1, 1, 1},        {2, 1, 3, 3, 16},         {1, 5, 2, 2, 3},
                                         {3, 7, 4, 2, 16, true}, {2, 64, 4, 4, 32},        {2, 65, 4, 1, 80},
                                         {1, 100, 2, 2, 33},     {5, 130, 4, 4, 20, true}, {1, 321, 2, 1, 64, true},
                                         {1, 257, 1, 1, 128}};

// A window of one position; within a block, as long as one and a little longer; whose edges lie anywhere in two blocks; as long as the
// sequence; and with more blocks than parts, of which a block of queries sees the keys of a few.
const AttentionCase kWindowCases[] = {
    {1, 70, 1, 1, 8, false, 1},     {2, 130, 2, 1, 16, true, 5},     {1, 200, 2, 2, 33, false, 37},
    {1, 257, 1, 1, 20, false, 63},  {1, 256, 2, 1, 32, true, 64},    {1, 300, 2, 2, 24, false, 65},
    {2, 321, 4, 2, 64, true, 100},  {1, 450, 1, 1, 16, false, 128},  {1, 330, 1, 1, 16, false, 250},
    {1, 129, 2, 1, 16, true, 129},  {1, 1300, 1, 1, 8, false, 70},   {1, 1200, 2, 1, 8, true, 200},
    {2, 600, 4, 2, 16, false, 130}, {1, 1111, 1, 1, 16, false, 700},
};

// Documents of one token; of less than a vector, a tile and a block; of blocks and more; longer than the sequence at times; and windows in
// them, shorter and longer.
const AttentionCase kDocumentCases[] = {
    {2, 70, 2, 1, 8, false, 0, 1},      {3, 64, 2, 2, 16, true, 0, 3},      {2, 130, 4, 2, 20, true, 0, 9},
    {2, 257, 2, 2, 33, false, 0, 30},   {3, 321, 2, 1, 64, true, 0, 64},    {1, 500, 2, 2, 16, false, 0, 100},
    {2, 1300, 1, 1, 8, false, 0, 200},  {4, 300, 2, 1, 24, true, 0, 290},   {2, 450, 2, 1, 16, true, 40, 60},
    {2, 600, 1, 1, 32, false, 130, 90}, {1, 1111, 2, 2, 8, true, 300, 250},
};

at::Tensor draw(at::IntArrayRef sizes, at::Generator& generator, at::ScalarType type) {
  return at::randn(sizes, generator).to(type);
}

at::Tensor rotated(const at::Tensor& x, const RotaryTables& tables) {
  if (!tables.cos.defined()) return x;
  const at::Tensor cos = at::cat({tables.cos, tables.cos}, -1).to(at::kCPU, at::kDouble);
  const at::Tensor sin = at::cat({tables.sin, tables.sin}, -1).to(at::kCPU, at::kDouble);
  const auto halves = x.chunk(2, -1);
  return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
}

// The formula in float64. factors (B, H, T, T): what dropout multiplies the weights by; undefined: nothing.
at::Tensor attention_reference(const at::Tensor& qkv, const AttentionCase& c, const at::Tensor& factors = {}) {
  auto parts = qkv.view({c.B, c.T, c.H + 2 * c.KV, c.D}).split_with_sizes({c.H, c.KV, c.KV}, 2);
  const auto tables = c.tables(at::kCPU);
  const at::Tensor q = rotated(parts[0], tables).transpose(1, 2);
  const at::Tensor k = rotated(parts[1], tables).transpose(1, 2).repeat_interleave(c.H / c.KV, 1);
  const at::Tensor v = parts[2].transpose(1, 2).repeat_interleave(c.H / c.KV, 1);
  const at::Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(c.D));
  at::Tensor weights = scores.masked_fill(c.hidden(), -std::numeric_limits<double>::infinity()).softmax(-1);
  if (factors.defined()) weights = weights * factors;
  return weights.matmul(v).transpose(1, 2).reshape({c.B, c.T, c.H * c.D});
}

double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }

// A value passes through sums over D (its score, the gradient of its weight) and T, and some twenty operations for the
// exponential and around it. 16-bit kernels round the weights, the output, the sum of output and gradient, the gradient of
// the scores and the result to 16 bits.
double bound(at::ScalarType type, const AttentionCase& c, const at::Tensor& exact) {
  return type == at::kFloat ? test::tolerance(type, 2 * c.D + c.T + 20, largest(exact))
                            : test::tolerance(type, 5, largest(exact));
}

void expect_near(const at::Tensor& actual, const at::Tensor& exact, at::ScalarType type, const AttentionCase& c) {
  ASSERT_EQ(actual.sizes(), exact.sizes());
  EXPECT_EQ(actual.scalar_type(), type);
  EXPECT_LE(largest(actual.detach().to(at::kCPU, at::kDouble) - exact.detach()), bound(type, c, exact.detach()));
}

// Output and gradient against float64. factors: what dropout multiplies by when `function` is called.
template <class Function>
void expect_float64_results(const AttentionCase& c, at::Device device, at::ScalarType type, double magnitude,
                            const at::Tensor& factors, const Function& function) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const at::Tensor values = (draw({c.B, c.T, c.width()}, generator, type) * magnitude);
  const at::Tensor qkv = values.to(device).detach().requires_grad_();
  const at::Tensor exact_qkv = values.to(at::kDouble).requires_grad_();
  const at::Tensor y = function(qkv), exact = attention_reference(exact_qkv, c, factors);
  expect_near(y, exact, type, c);
  const at::Tensor upstream = draw(y.sizes(), generator, type);
  y.backward(upstream.to(device));
  exact.backward(upstream.to(at::kDouble));
  expect_near(qkv.grad(), exact_qkv.grad(), type, c);
}

class AttentionTest : public testing::TestWithParam<std::tuple<DeviceCase, AttentionCase>> {
 protected:
  void SetUp() override { GPT_SKIP_WITHOUT(std::get<0>(GetParam())); }
  at::Device device() const { return std::get<0>(GetParam()).device; }
  const AttentionCase& shape() const { return std::get<1>(GetParam()); }
};

std::vector<at::ScalarType> types_on(at::Device device) {
  if (device.is_cpu()) return {at::kFloat, at::kBFloat16};
  return {at::kFloat, at::kBFloat16, at::kHalf};
}

TEST_P(AttentionTest, EqualsFloat64) {
  const AttentionCase& c = shape();
  for (const auto type : types_on(device())) {
    SCOPED_TRACE(c10::toString(type));
    expect_float64_results(c, device(), type, 1, {}, [&](const at::Tensor& qkv) {
      return attention(qkv, c.spec({}, device()), c.tables(device()));
    });
  }
}

// The dropout that belongs to a seed: on a GPU, where it is LibTorch's, the generator's.
DropoutSpec seeded_dropout(at::Device device, double probability, uint64_t seed) {
  device::seed_random_state(device, seed);
  return test::dropout_at(device, probability, static_cast<int64_t>(seed));
}

// What attention() multiplies the weights by with the dropout of this seed, (B, H, T, T). The values of a pass are D
// columns of the unit matrix, so that it returns D columns of the weights; with equal scores these are one over the number of
// positions that a query sees.
at::Tensor dropout_factors_of(const AttentionCase& c, at::Device device, double dropout, uint64_t seed,
                              at::ScalarType type = at::kFloat) {
  std::vector<at::Tensor> columns;
  for (int64_t from = 0; from < c.T; from += c.D) {
    const int64_t count = std::min(c.D, c.T - from);
    at::Tensor qkv = at::zeros({c.B, c.T, c.H + 2 * c.KV, c.D});
    qkv.narrow(2, c.H + c.KV, c.KV)
        .narrow(1, from, count)
        .narrow(3, 0, count)
        .copy_(at::eye(count).view({1, count, 1, count}));
    // A leaf of autograd, for which a GPU may choose another kernel.
    qkv = qkv.view({c.B, c.T, c.width()}).to(device, type).requires_grad_();
    const at::Tensor y = attention(qkv, c.spec(seeded_dropout(device, dropout, seed), device)).detach();
    columns.push_back(y.cpu().view({c.B, c.T, c.H, c.D}).transpose(1, 2).narrow(3, 0, count));
  }
  return at::cat(columns, -1).to(at::kDouble) * c.hidden().logical_not().sum(-1, /*keepdim=*/true);
}

// On a GPU each type has a kernel of its own, which draws in an order of its own. Its factors, 0 or 1 / (1 - dropout), come back
// rounded.
TEST_P(AttentionTest, DropsTheSameWeightsInBothPasses) {
  const AttentionCase& c = shape();
  const double dropout = 0.3;
  const at::Tensor of_float32 = dropout_factors_of(c, device(), dropout, 5);
  for (const auto type : types_on(device())) {
    SCOPED_TRACE(c10::toString(type));
    const bool has_own_mask = device().is_cuda() && type != at::kFloat;
    const at::Tensor factors =
        has_own_mask ? (dropout_factors_of(c, device(), dropout, 5, type) != 0).to(at::kDouble) / (1 - dropout)
                     : of_float32;
    expect_float64_results(c, device(), type, 1, factors, [&](const at::Tensor& qkv) {
      return attention(qkv, c.spec(seeded_dropout(device(), dropout, 5), device()), c.tables(device()));
    });
  }
}

// LibTorch's operators take a mask where they have no kernel for windows or documents.
TEST_P(AttentionTest, IsThatOfLibTorchsOperators) {
  const AttentionCase& c = shape();
  for (const auto type : types_on(device())) {
    SCOPED_TRACE(c10::toString(type));
    expect_float64_results(c, device(), type, 1, {}, [&](const at::Tensor& qkv) {
      return aten_operators()->attention(qkv, c.spec({}, device()), c.tables(device()));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, AttentionTest,
                         testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(kWindowCases)),
                         index_and_device);
INSTANTIATE_TEST_SUITE_P(Documents, AttentionTest,
                         testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(kDocumentCases)),
                         index_and_device);
INSTANTIATE_TEST_SUITE_P(Devices, AttentionTest,
                         testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(kAttentionCases)),
                         index_and_device);

class AttentionOn : public DeviceTest {};

TEST_P(AttentionOn, DropsTheShareThatWasAskedForAndScalesTheRest) {
  const AttentionCase c{3, 150, 4, 4, 32};
  for (const auto type : types_on(device())) {  // on a GPU with other kernels, among which one rounds the probability
    for (const double dropout : {0.1, 0.2, 0.5, 0.9}) {
      SCOPED_TRACE(testing::Message() << type << ", " << dropout);
      const at::Tensor factors = dropout_factors_of(c, device(), dropout, 7, type);
      const at::Tensor visible = at::ones({c.T, c.T}).tril().to(at::kBool);
      const at::Tensor values = factors.masked_select(visible);
      const auto n = static_cast<double>(values.numel());
      const at::Tensor kept = values.masked_select(values != 0);
      // The share has a standard deviation of sqrt(p (1 - p) / n); the scale is right within a rounding of the probability to
      // 16 bits and some of the weights.
      EXPECT_NEAR(static_cast<double>(kept.numel()) / n, 1 - dropout, 4 * std::sqrt(dropout * (1 - dropout) / n));
      EXPECT_LE(largest(kept * (1 - dropout) - 1),
                std::ldexp(1.0, -17) / (1 - dropout) + test::tolerance(type, type == at::kFloat ? 200 : 5));
      EXPECT_EQ(largest(factors.masked_select(visible.logical_not())), 0);
    }
  }
}

TEST_P(AttentionOn, DrawsADifferentMaskForEveryHeadRowAndCall) {
  const AttentionCase c{2, 128, 2, 2, 64};
  const at::Tensor first = dropout_factors_of(c, device(), 0.5, 7) != 0,
                   second = dropout_factors_of(c, device(), 0.5, 8) != 0;
  EXPECT_TRUE(at::equal(first, dropout_factors_of(c, device(), 0.5, 7) != 0));
  // Independent masks of probability 1/2 agree in half of the places, within four standard deviations.
  const auto agreement = [](const at::Tensor& a, const at::Tensor& b) {
    const double share = (a == b).to(at::kDouble).mean().item<double>();
    return std::abs(share - 0.5) / (0.5 / std::sqrt(static_cast<double>(a.numel())));
  };
  const auto below = [&](const at::Tensor& x) { return x.narrow(1, 64, 64).narrow(2, 0, 64); };  // all visible
  EXPECT_LE(agreement(below(first[0]), below(second[0])), 4);
  EXPECT_LE(agreement(below(first[0]), below(first[1])), 4);
  EXPECT_LE(agreement(below(first[0])[0], below(first[0])[1]), 4);
  EXPECT_LE(agreement(below(first[0])[0].narrow(0, 0, 63), below(first[0])[0].narrow(0, 1, 63)), 4);
  EXPECT_LE(agreement(below(first[0])[0].narrow(1, 0, 63), below(first[0])[0].narrow(1, 1, 63)), 4);
}

TEST_P(AttentionOn, TakesLargeScores) {
  const AttentionCase c{1, 90, 2, 2, 16};  // scores of up to some thousands
  at::Generator generator = at::detail::createCPUGenerator(2);
  const at::Tensor qkv = at::randn({c.B, c.T, c.width()}, generator) * 30;
  const at::Tensor exact = attention_reference(qkv.to(at::kDouble), c);
  const at::Tensor y = attention(qkv.to(device()), {c.H, c.KV}).cpu();
  // An error of the score, a sum over D of this size, is the relative error of a weight.
  const double score = test::tolerance(at::kFloat, c.D, 30 * 30 * 16);
  EXPECT_LE(largest(y - exact), score * largest(exact));
}

INSTANTIATE_ON_DEVICES(AttentionOn);

struct AttentionResults {
  at::Tensor output, gradient;
};

// negated (B, T) bool: of these positions all that goes in.
AttentionResults results(const AttentionCase& c, at::ScalarType type, double dropout, const at::Tensor& negated = {}) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  at::Tensor qkv = draw({c.B, c.T, c.width()}, generator, type);
  at::Tensor upstream = draw({c.B, c.T, c.H * c.D}, generator, type);
  if (negated.defined()) {
    for (at::Tensor* x : {&qkv, &upstream}) *x = at::where(negated.unsqueeze(-1), -*x, *x);
  }
  qkv.requires_grad_();
  const at::Tensor y = attention(qkv, c.spec({dropout}), c.tables(at::kCPU));
  y.backward(upstream);
  return {y.detach(), qkv.grad()};
}

TEST(Attention, IsTheSameToTheBitForEveryNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const AttentionCase& c :
       {AttentionCase{1, 300, 2, 1, 32, true}, AttentionCase{3, 70, 4, 4, 16}, AttentionCase{1, 700, 1, 1, 8},
        AttentionCase{1, 1300, 1, 1, 8, false, 150}, AttentionCase{1, 1300, 1, 1, 8, false, 0, 150}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      at::set_num_threads(1);
      const AttentionResults one = results(c, type, 0.1);
      for (const int threads : {2, 3, 8}) {
        at::set_num_threads(threads);
        const AttentionResults many = results(c, type, 0.1);
        EXPECT_TRUE(at::equal(one.output, many.output)) << threads;
        EXPECT_TRUE(at::equal(one.gradient, many.gradient)) << threads;
      }
    }
  }
  at::set_num_threads(before);
}

TEST(Attention, DoesNotDependOnWhatItsMemoryContained) {
  // Odd numbers of positions and a rest of a block, for pairs and vectors that are not whole.
  for (const AttentionCase& c :
       {AttentionCase{1, 97, 2, 1, 64}, AttentionCase{2, 33, 2, 2, 33}, AttentionCase{1, 65, 1, 1, 20, true},
        AttentionCase{1, 350, 1, 1, 20, false, 75}, AttentionCase{1, 1300, 1, 1, 8, false, 20},
        AttentionCase{2, 333, 2, 1, 20, true, 0, 40}, AttentionCase{1, 1300, 1, 1, 8, false, 90, 150}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      std::vector<at::Tensor> memory;  // fills the gaps that what follows will be given
      for (int i = 0; i < 300; ++i) {
        memory.push_back(at::full({i < 200 ? 20000 : 250000}, std::numeric_limits<float>::quiet_NaN()));
      }
      memory.clear();
      const AttentionResults got = results(c, type, 0.1);
      EXPECT_TRUE(got.output.isfinite().all().item<bool>()) << type;
      EXPECT_TRUE(got.gradient.isfinite().all().item<bool>()) << type;
    }
  }
}

// A processor with AVX512_BF16 chooses one of the kernels for 16-bit tensors, and all run on it but those for a matrix unit.
TEST(Attention, KernelsWithAndWithoutDotProductsEqualFloat64) {
  using enum cpu::Capability;
  if (device::dot_product_gain() == 0) GTEST_SKIP() << "no AVX512_BF16 on this processor";
  for (const auto capability : {AVX512, AVX512_BF16, AVX512_AMX}) {
    if (capability == AVX512_AMX && cpu::capability() != AVX512_AMX) continue;
    const cpu::WithCapability with(capability);
    std::vector<AttentionCase> cases(std::begin(kAttentionCases), std::end(kAttentionCases));
    cases.insert(cases.end(), std::begin(kWindowCases), std::end(kWindowCases));
    cases.insert(cases.end(), std::begin(kDocumentCases), std::end(kDocumentCases));
    for (const AttentionCase& c : cases) {
      expect_float64_results(c, at::kCPU, at::kBFloat16, 1, {},
                             [&](const at::Tensor& qkv) { return attention(qkv, c.spec(), c.tables(at::kCPU)); });
    }
  }
}

TEST(Attention, PassesNotANumberOn) {
  for (const int64_t place : {0, 20, 40}) {  // in the query, key and value at the third position
    at::Tensor qkv = at::randn({1, 70, 48}, at::kFloat);
    qkv[0][2][place] = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor y = attention(qkv, {1, 1});
    EXPECT_TRUE(y[0][2].isnan().any().item<bool>());
    EXPECT_FALSE(y[0].narrow(0, 0, 2).isnan().any().item<bool>() && place != 40);
  }
}

TEST(Attention, AWindowOfTheWholeSequenceChangesNoBit) {
  for (const AttentionCase& c : {AttentionCase{1, 300, 2, 1, 32, true}, AttentionCase{2, 65, 1, 1, 16}}) {
    for (const int64_t window : {c.T, c.T + 1, 10 * c.T}) {
      AttentionCase windowed = c;
      windowed.window = window;
      const AttentionResults full = results(c, at::kFloat, 0.1), same = results(windowed, at::kFloat, 0.1);
      EXPECT_TRUE(at::equal(full.output, same.output)) << window;
      EXPECT_TRUE(at::equal(full.gradient, same.gradient)) << window;
    }
  }
}

// If they were computed and hidden, 0 times what is not a number would be seen.
TEST(Attention, BlocksThatTheWindowHidesAreNotComputed) {
  const AttentionCase c{1, 640, 1, 1, 16, false, 100};
  at::Tensor qkv = at::randn({c.B, c.T, c.width()});
  qkv[0].narrow(0, 0, 64).narrow(1, c.D, 2 * c.D).fill_(std::numeric_limits<float>::quiet_NaN());  // keys and values
  qkv.requires_grad_();
  const at::Tensor y = attention(qkv, c.spec());
  const int64_t first = 64 + 2 * 64;  // the first block of queries that sees nothing of the first block
  EXPECT_TRUE(y[0].narrow(0, first, c.T - first).isfinite().all().item<bool>());
  EXPECT_TRUE(y[0].narrow(0, 0, 64).isnan().all().item<bool>());
  at::Tensor upstream = at::zeros_like(y);
  upstream[0].narrow(0, 2 * first, c.T - 2 * first).fill_(1);
  y.backward(upstream);
  EXPECT_TRUE(qkv.grad()[0].narrow(0, 2 * first, c.T - 2 * first).isfinite().all().item<bool>());
}

// Not even bits of what attention and its backward pass make of one document follow from what is in another.
TEST(Attention, DocumentsDoNotReachEachOther) {
  for (const AttentionCase& c :
       {AttentionCase{2, 333, 4, 2, 20, true, 0, 40}, AttentionCase{1, 1300, 1, 1, 16, false, 90, 150}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const AttentionResults before = results(c, type, 0.1);
      const at::Tensor starts = c.document_starts(),
                       changed = starts == starts.select(1, c.T / 2).unsqueeze(1);  // (B, T)
      const AttentionResults after = results(c, type, 0.1, changed);
      const at::Tensor others = changed.logical_not().unsqueeze(-1);
      EXPECT_TRUE(others.any().item<bool>());
      EXPECT_TRUE(at::equal(before.output.masked_select(others), after.output.masked_select(others)));
      EXPECT_TRUE(at::equal(before.gradient.masked_select(others), after.gradient.masked_select(others)));
      EXPECT_FALSE(at::equal(before.output, after.output));
    }
  }
}

TEST(Attention, OneDocumentChangesNoBit) {
  for (const AttentionCase& c : {AttentionCase{1, 300, 2, 1, 32, true}, AttentionCase{2, 600, 1, 1, 16, false, 130}}) {
    AttentionCase one = c;
    one.document = 100 * c.T;  // whose length is drawn, and is more than c.T here
    ASSERT_EQ(one.document_starts().max().item<int64_t>(), 0);
    const AttentionResults without = results(c, at::kFloat, 0.1), with = results(one, at::kFloat, 0.1);
    EXPECT_TRUE(at::equal(without.output, with.output));
    EXPECT_TRUE(at::equal(without.gradient, with.gradient));
  }
}

// If they were computed and hidden, 0 times what is not a number would be seen.
TEST(Attention, BlocksOfOtherDocumentsAreNotComputed) {
  const AttentionCase c{1, 640, 1, 1, 16};
  const int64_t begin = 200;  // within the fourth block, which begins the second document
  AttentionSpec spec = c.spec();
  spec.document_starts = at::cat({at::zeros({1, begin}, at::kInt), at::full({1, c.T - begin}, begin, at::kInt)}, 1);
  at::Tensor qkv = at::randn({c.B, c.T, c.width()});
  qkv[0].narrow(0, 0, 192).narrow(1, c.D, 2 * c.D).fill_(std::numeric_limits<float>::quiet_NaN());  // keys and values
  qkv.requires_grad_();
  const at::Tensor y = attention(qkv, spec);
  EXPECT_TRUE(y[0].narrow(0, 256, c.T - 256).isfinite().all().item<bool>());
  EXPECT_TRUE(y[0].narrow(0, 0, 192).isnan().all().item<bool>());
  at::Tensor upstream = at::zeros_like(y);
  upstream[0].narrow(0, 256, c.T - 256).fill_(1);
  y.backward(upstream);
  EXPECT_TRUE(qkv.grad()[0].narrow(0, 256, c.T - 256).isfinite().all().item<bool>());
}

TEST(Attention, RejectsWhatDoesNotFit) {
  const at::Tensor qkv = at::randn({2, 3, 24});
  EXPECT_THROW(attention(qkv, {3, 2}), c10::Error);
  EXPECT_THROW(attention(qkv, {0, 1}), c10::Error);
  EXPECT_THROW(attention(qkv, {.heads = 2, .kv_heads = 1, .window = -1}), c10::Error);
  for (const at::Tensor& starts : {at::zeros({2, 3}), at::zeros({3, 2}, at::kInt)})
    EXPECT_THROW(attention(qkv, {.heads = 2, .kv_heads = 1, .document_starts = starts}), c10::Error);
  EXPECT_THROW(attention(qkv, {3, 3}), c10::Error);
  EXPECT_THROW(attention(qkv, {2, 1, {1.0}}), c10::Error);
  EXPECT_THROW(attention(qkv, {2, 1, {-0.1}}), c10::Error);
  EXPECT_THROW(attention(qkv, {2, 1}, rotary_tables(4, 6, 10000.0, at::kCPU)), c10::Error);
  EXPECT_THROW(attention(qkv.to(at::kDouble), {2, 1}), c10::Error);
  EXPECT_THROW(attention(qkv.transpose(0, 1), {2, 1}), c10::Error);
  EXPECT_NO_THROW(attention(qkv, {2, 1, {0.5}}, rotary_tables(3, 6, 10000.0, at::kCPU)));
}

// The known answer for zeros that its authors publish.
TEST(Philox, GivesItsAuthorsResults) {
  const auto zeros = cpu::philox(0, 0, 0, 0, 0);
  const uint32_t expected[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int word = 0; word < 4; ++word) EXPECT_EQ(zeros.words[word][0], expected[word]);
}

}  // namespace
}  // namespace gpt::ops
