// Attention to blocks that each query chooses, against float64 with a mask of the same choice, and the choice against its definition.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

#include "gpt/device/cpu_bfloat16.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/simd/cpu_capability.h"
#include "support/dropout_at.h"
#include "support/tolerance.h"

namespace gpt::ops {
namespace {

struct ChosenCase {
  int64_t B, T, H, KV, D;
  BlockChoice blocks;
  bool rope = false;

  AttentionSpec spec(const DropoutSpec& dropout = {}) const {
    return {.heads = H, .kv_heads = KV, .dropout = dropout, .blocks = blocks};
  }
  int64_t width() const { return (H + 2 * KV) * D; }
  RotaryTables tables() const { return rope ? rotary_tables(T, D, 10000.0, at::kCPU) : RotaryTables{}; }
};

// 2 x 300, 4 and 2 heads of 20 rotated, 2 blocks of 64
void PrintTo(const ChosenCase& c, std::ostream* out) {
  *out << c.B << " x " << c.T << ", " << c.H << " and " << c.KV << " heads of " << c.D << (c.rope ? " rotated" : "")
       << ", " << c.blocks.top << " blocks of " << c.blocks.size;
}

// Whole blocks and a rest; one position more than where the choice begins; more queries of a block than a tile has; several parts for one
// sequence, of queries and of keys; longer blocks than those that kernels compute.
const ChosenCase kChosenCases[] = {{1, 300, 2, 1, 16, {64, 1}, true},  {2, 321, 4, 2, 20, {64, 2}, true},
                                   {1, 193, 2, 2, 33, {64, 2}},        {1, 512, 1, 1, 64, {64, 3}, true},
                                   {1, 1300, 1, 1, 8, {64, 2}},        {3, 260, 6, 2, 32, {64, 1}, true},
                                   {1, 900, 2, 1, 16, {128, 2}, true}, {1, 1111, 2, 2, 16, {192, 1}},
                                   {1, 500, 2, 2, 24, {64, 5}, true},  {1, 450, 1, 1, 80, {64, 1}},
                                   {1, 1000, 2, 1, 16, {320, 1}, true}};

at::Tensor draw(at::IntArrayRef sizes, at::ScalarType type, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator).to(type);
}

// q, k and v in float64, (B, H, T, D) and (B, KV, T, D) twice; q and k rotated, and in `type` again where that is what the choice reads.
struct ExactHeads {
  at::Tensor q, k, v;

  ExactHeads(const at::Tensor& qkv, const ChosenCase& c) {
    const auto parts = qkv.view({c.B, c.T, c.H + 2 * c.KV, c.D}).split_with_sizes({c.H, c.KV, c.KV}, 2);
    q = rotated(parts[0], c.tables()).transpose(1, 2);
    k = rotated(parts[1], c.tables()).transpose(1, 2);
    v = parts[2].transpose(1, 2);
  }

 private:
  static at::Tensor rotated(const at::Tensor& x, const RotaryTables& tables) {
    if (!tables.cos.defined()) return x;
    const at::Tensor cos = at::cat({tables.cos, tables.cos}, -1).to(at::kDouble),
                     sin = at::cat({tables.sin, tables.sin}, -1).to(at::kDouble);
    const auto halves = x.chunk(2, -1);
    return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
  }
};

// (B, H, T, blocks) bool: of the blocks before a query's own, those that it attends to. The values of a pass tell D blocks apart, so that
// what it returns is how much weight a query gives to each of them. Scores here are small: no weight is 0.
at::Tensor choice_of(const at::Tensor& qkv, const ChosenCase& c, const SharedOperators& operators = fused_operators()) {
  const int64_t blocks = (c.T + c.blocks.size - 1) / c.blocks.size;
  const at::Tensor block_of = at::arange(c.T).floor_divide(c.blocks.size);
  std::vector<at::Tensor> weights;
  for (int64_t from = 0; from < blocks; from += c.D) {
    const at::Tensor told = at::arange(from, from + c.D);
    at::Tensor marked = qkv.detach().clone().view({c.B, c.T, c.H + 2 * c.KV, c.D});
    marked.narrow(2, c.H + c.KV, c.KV).copy_((block_of.unsqueeze(1) == told).view({1, c.T, 1, c.D}));
    const at::Tensor y = operators->attention(marked.view({c.B, c.T, c.width()}), c.spec(), c.tables());
    weights.push_back(y.view({c.B, c.T, c.H, c.D}).transpose(1, 2));
  }
  const at::Tensor is_earlier = at::arange(blocks) < block_of.unsqueeze(1);
  return (at::cat(weights, -1).narrow(-1, 0, blocks) > 0).logical_and(is_earlier);
}

// (B, H, T, T) bool: the keys that a query does not see.
at::Tensor hidden(const at::Tensor& choice, const ChosenCase& c) {
  const at::Tensor positions = at::arange(c.T), own = positions.floor_divide(c.blocks.size);
  const at::Tensor seen = choice.repeat_interleave(c.blocks.size, -1)
                              .narrow(-1, 0, c.T)
                              .logical_or(own.unsqueeze(1) == own)
                              .logical_and(positions.unsqueeze(1) >= positions);
  return seen.logical_not();
}

// factors (B, H, T, T): what dropout multiplies the weights by; undefined: nothing.
at::Tensor attention_reference(const at::Tensor& qkv, const ChosenCase& c, const at::Tensor& hides,
                               const at::Tensor& factors) {
  const ExactHeads heads(qkv, c);
  const auto for_queries = [&](const at::Tensor& x) { return x.repeat_interleave(c.H / c.KV, 1); };
  const at::Tensor scores = heads.q.matmul(for_queries(heads.k).transpose(2, 3)) / std::sqrt(static_cast<double>(c.D));
  at::Tensor weights = scores.masked_fill(hides, -std::numeric_limits<double>::infinity()).softmax(-1);
  if (factors.defined()) weights = weights * factors;
  return weights.matmul(for_queries(heads.v)).transpose(1, 2).reshape({c.B, c.T, c.H * c.D});
}

double largest_of(const at::Tensor& x) { return x.abs().max().item<double>(); }

// As in attention_test.cpp.
double bound(at::ScalarType type, const ChosenCase& c, const at::Tensor& exact) {
  return type == at::kFloat ? test::tolerance(type, 2 * c.D + c.T + 20, largest_of(exact))
                            : test::tolerance(type, 5, largest_of(exact));
}

void expect_near(const at::Tensor& actual, const at::Tensor& exact, at::ScalarType type, const ChosenCase& c) {
  ASSERT_EQ(actual.sizes(), exact.sizes());
  EXPECT_EQ(actual.scalar_type(), type);
  EXPECT_LE(largest_of(actual.detach().to(at::kDouble) - exact.detach()), bound(type, c, exact.detach()));
}

template <class Function>
void expect_float64_results(const ChosenCase& c, at::ScalarType type, const at::Tensor& hides,
                            const at::Tensor& factors, const Function& function) {
  const at::Tensor values = draw({c.B, c.T, c.width()}, type, 1);
  const at::Tensor qkv = values.clone().requires_grad_(), exact_qkv = values.to(at::kDouble).requires_grad_();
  const at::Tensor y = function(qkv), exact = attention_reference(exact_qkv, c, hides, factors);
  expect_near(y, exact, type, c);
  const at::Tensor upstream = draw(y.sizes(), type, 2);
  y.backward(upstream);
  exact.backward(upstream.to(at::kDouble));
  expect_near(qkv.grad(), exact_qkv.grad(), type, c);
}

at::Tensor hidden_of_drawn(const ChosenCase& c, at::ScalarType type) {
  return hidden(choice_of(draw({c.B, c.T, c.width()}, type, 1), c), c);
}

class ChosenAttention : public testing::TestWithParam<ChosenCase> {};

TEST_P(ChosenAttention, QueriesChooseTheBlocksOfTheLargestMeans) {
  const ChosenCase& c = GetParam();
  const int64_t top = c.blocks.top, blocks = (c.T - 1) / c.blocks.size;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor qkv = draw({c.B, c.T, c.width()}, type, 1), choice = choice_of(qkv, c);
    const ExactHeads heads(qkv.to(at::kDouble), c);
    const at::Tensor means = heads.k.narrow(2, 0, blocks * c.blocks.size)
                                 .unflatten(2, {blocks, c.blocks.size})
                                 .mean(3)
                                 .repeat_interleave(c.H / c.KV, 1);
    const at::Tensor importance = heads.q.matmul(means.transpose(2, 3)).contiguous();
    int64_t clear = 0, queries = 0;
    for (int64_t b = 0; b < c.B; ++b) {
      for (int64_t h = 0; h < c.H; ++h) {
        for (int64_t t = 0; t < c.T; ++t) {
          const int64_t earlier = t / c.blocks.size;
          const auto chosen = choice[b][h][t];
          EXPECT_EQ(chosen.sum().item<int64_t>(), std::min(earlier, top));
          if (earlier <= top) continue;
          const double* of_query = importance[b][h][t].const_data_ptr<double>();
          std::vector<int64_t> order;
          for (int64_t i = 0; i < earlier; ++i) order.push_back(i);
          std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return of_query[x] > of_query[y]; });
          ++queries;
          // Rotated values are rounded to the type, products and means to float32.
          const double error = (type == at::kFloat || !c.rope)
                                   ? test::tolerance(at::kFloat, c.D + c.blocks.size, largest_of(heads.q[b][h][t]))
                                   : test::tolerance(type, 1, largest_of(heads.q[b][h][t]));
          if (of_query[order[top - 1]] - of_query[order[top]] < error) continue;
          ++clear;
          for (int64_t i = 0; i < top; ++i) EXPECT_TRUE(chosen[order[i]].item<bool>()) << t << " block " << order[i];
        }
      }
    }
    EXPECT_GT(queries, 0);
    EXPECT_GT(static_cast<double>(clear), 0.8 * static_cast<double>(queries)) << "the rest are near ties";
  }
}

TEST_P(ChosenAttention, EqualsFloat64) {
  const ChosenCase& c = GetParam();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(type));
    expect_float64_results(c, type, hidden_of_drawn(c, type), {},
                           [&](const at::Tensor& qkv) { return attention(qkv, c.spec(), c.tables()); });
  }
}

class ChosenAttentionWithDropout : public ChosenAttention {};

// The factors are found with values that are columns of the unit matrix, which make the result the weights.
TEST_P(ChosenAttentionWithDropout, DropsTheSameWeightsInBothPasses) {
  const ChosenCase& c = GetParam();
  const DropoutSpec dropout = test::dropout_at(at::kCPU, 0.25, 5);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(type));
    const at::Tensor hides = hidden_of_drawn(c, type), qkv = draw({c.B, c.T, c.width()}, type, 1);
    std::vector<at::Tensor> columns;
    for (int64_t from = 0; from < c.T; from += c.D) {
      const int64_t count = std::min(c.D, c.T - from);
      at::Tensor unit = qkv.clone().view({c.B, c.T, c.H + 2 * c.KV, c.D});
      unit.narrow(2, c.H + c.KV, c.KV).zero_();
      unit.narrow(2, c.H + c.KV, c.KV)
          .narrow(1, from, count)
          .narrow(3, 0, count)
          .copy_(at::eye(count).view({1, count, 1, count}));
      const at::Tensor y = attention(unit.view({c.B, c.T, c.width()}), c.spec(dropout), c.tables());
      columns.push_back(y.view({c.B, c.T, c.H, c.D}).transpose(1, 2).narrow(3, 0, count) > 0);
    }
    const at::Tensor kept = at::cat(columns, -1), seen = hides.logical_not();
    const auto n = static_cast<double>(seen.sum().item<int64_t>());
    EXPECT_NEAR(static_cast<double>(kept.sum().item<int64_t>()) / n, 0.75, 4 * std::sqrt(0.75 * 0.25 / n));
    expect_float64_results(c, type, hides, kept.to(at::kDouble) / 0.75,
                           [&](const at::Tensor& x) { return attention(x, c.spec(dropout), c.tables()); });
  }
}

TEST_P(ChosenAttention, IsThatOfLibTorchsOperators) {
  const ChosenCase& c = GetParam();
  expect_float64_results(c, at::kFloat, hidden_of_drawn(c, at::kFloat), {},
                         [&](const at::Tensor& qkv) { return aten_operators()->attention(qkv, c.spec(), c.tables()); });
}

INSTANTIATE_TEST_SUITE_P(Cases, ChosenAttention, testing::ValuesIn(kChosenCases));
INSTANTIATE_TEST_SUITE_P(Cases, ChosenAttentionWithDropout,
                         testing::Values(kChosenCases[0], kChosenCases[2], kChosenCases[3], kChosenCases[6]));

struct ChosenResults {
  at::Tensor output, gradient;
};

ChosenResults results(const at::Tensor& values, const AttentionSpec& spec, const ChosenCase& c) {
  const at::Tensor qkv = values.clone().requires_grad_();
  const at::Tensor y = attention(qkv, spec, c.tables());
  y.backward(draw(y.sizes(), values.scalar_type(), 2));
  return {y.detach(), qkv.grad()};
}

ChosenResults results(const ChosenCase& c, at::ScalarType type, double dropout = 0.1) {
  return results(draw({c.B, c.T, c.width()}, type, 3), c.spec({dropout}), c);
}

TEST(ChosenAttention, EqualsFullAttentionWhereAllBlocksFit) {
  for (const ChosenCase& c : {ChosenCase{2, 321, 4, 2, 32, {64, 5}, true}, ChosenCase{1, 600, 1, 1, 16, {128, 4}},
                              ChosenCase{1, 50, 2, 2, 16, {64, 1}}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor values = draw({c.B, c.T, c.width()}, type, 3);
      const ChosenResults chosen = results(values, c.spec(), c),
                          full = results(values, {.heads = c.H, .kv_heads = c.KV}, c);
      EXPECT_TRUE(at::equal(chosen.output, full.output));
      EXPECT_TRUE(at::equal(chosen.gradient, full.gradient));
      // One more position, and only its choice is not all.
      const ChosenCase longer{c.B, (c.blocks.top + 1) * c.blocks.size + 1, c.H, c.KV, c.D, c.blocks, c.rope};
      const at::Tensor more = draw({c.B, longer.T, c.width()}, type, 3),
                       first = results(more, longer.spec(), longer).output;
      expect_near(
          first.narrow(1, 0, longer.T - 1),
          results(more, {.heads = c.H, .kv_heads = c.KV}, longer).output.narrow(1, 0, longer.T - 1).to(at::kDouble),
          type, longer);
    }
  }
}

TEST(ChosenAttention, IsTheSameToTheBitForEveryNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const ChosenCase& c : {ChosenCase{1, 700, 2, 1, 32, {64, 2}, true}, ChosenCase{3, 300, 4, 4, 16, {64, 1}},
                              ChosenCase{1, 1300, 1, 1, 8, {128, 3}}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      at::set_num_threads(1);
      const ChosenResults one = results(c, type);
      for (const int threads : {2, 3, 8}) {
        at::set_num_threads(threads);
        const ChosenResults many = results(c, type);
        EXPECT_TRUE(at::equal(one.output, many.output)) << threads;
        EXPECT_TRUE(at::equal(one.gradient, many.gradient)) << threads;
      }
    }
  }
  at::set_num_threads(before);
}

TEST(ChosenAttention, DoesNotDependOnWhatItsMemoryContained) {
  for (const ChosenCase& c : {ChosenCase{1, 397, 2, 1, 20, {64, 2}, true}, ChosenCase{1, 1300, 1, 1, 33, {128, 1}}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      std::vector<at::Tensor> memory;  // fills the gaps that what follows will be given
      for (int i = 0; i < 300; ++i)
        memory.push_back(at::full({i < 200 ? 20000 : 250000}, std::numeric_limits<float>::quiet_NaN()));
      memory.clear();
      const ChosenResults got = results(c, type);
      EXPECT_TRUE(got.output.isfinite().all().item<bool>()) << type;
      EXPECT_TRUE(got.gradient.isfinite().all().item<bool>()) << type;
    }
  }
}

// Neither in what comes out nor in what is chosen.
TEST(ChosenAttention, NoBitOfAPositionFollowsFromLaterOnes) {
  const ChosenCase c{2, 700, 4, 2, 16, {64, 2}, true};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor values = draw({c.B, c.T, c.width()}, type, 3), choice = choice_of(values, c);
    const at::Tensor before = results(values, c.spec({0.1}), c).output;
    for (const int64_t from : {1, 63, 64, 130, 448, 699}) {
      at::Tensor changed = values.clone();
      changed.narrow(1, from, c.T - from).copy_(draw({c.B, c.T - from, c.width()}, type, 9) * 3);
      const at::Tensor after = results(changed, c.spec({0.1}), c).output;
      EXPECT_TRUE(at::equal(before.narrow(1, 0, from), after.narrow(1, 0, from))) << from;
      EXPECT_FALSE(at::equal(before, after));
      EXPECT_TRUE(at::equal(choice.narrow(2, 0, from), choice_of(changed, c).narrow(2, 0, from))) << from;
    }
  }
}

TEST(ChosenAttention, OfEqualBlocksTheNearerOnesAreChosen) {
  const ChosenCase c{1, 640, 1, 1, 16, {64, 3}};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const double value : {0.0, 0.5}) {
      for (const bool ours : {true, false}) {
        const at::Tensor choice = choice_of(at::full({c.B, c.T, c.width()}, value, type), c,
                                            ours ? fused_operators() : aten_operators())[0][0];
        for (int64_t t = 0; t < c.T; t += 31)
          for (int64_t block = 0; block < t / 64; ++block)
            ASSERT_EQ(choice[t][block].item<bool>(), block >= t / 64 - 3) << t << " block " << block;
      }
    }
  }
}

// If they were computed and hidden, 0 times what is not a number would be seen.
TEST(ChosenAttention, BlocksThatNobodyChoseAreNotComputed) {
  const ChosenCase c{1, 640, 1, 1, 16, {64, 2}};
  at::Tensor qkv = draw({c.B, c.T, c.width()}, at::kFloat, 4);
  qkv[0].narrow(1, 0, 1).fill_(20);  // all queries dislike the keys of the first block
  qkv[0].narrow(0, 0, 64).narrow(1, c.D, 1).fill_(-20);
  qkv[0].narrow(0, 0, 64).narrow(1, 2 * c.D, c.D).fill_(std::numeric_limits<float>::quiet_NaN());  // values
  qkv.requires_grad_();
  const at::Tensor y = attention(qkv, c.spec());
  const int64_t first = 3 * 64;  // where there are more blocks than are chosen
  EXPECT_TRUE(y[0].narrow(0, first, c.T - first).isfinite().all().item<bool>());
  EXPECT_TRUE(y[0].narrow(0, 0, first).isnan().all().item<bool>());
}

// A processor runs what it was compiled for, and all before it.
TEST(ChosenAttention, KernelsOfAllProcessorsEqualFloat64) {
  using enum cpu::Capability;
  for (const auto capability : {DEFAULT, AVX2, AVX512, AVX512_BF16, AVX512_AMX}) {
    if (capability > cpu::capability() || (capability == AVX512_BF16 && device::dot_product_gain() == 0)) continue;
    const cpu::WithCapability with(capability);
    for (const ChosenCase& c : {kChosenCases[0], kChosenCases[2], kChosenCases[6]}) {
      for (const auto type : {at::kFloat, at::kBFloat16})
        expect_float64_results(c, type, hidden_of_drawn(c, type), {},
                               [&](const at::Tensor& qkv) { return attention(qkv, c.spec(), c.tables()); });
    }
  }
}

TEST(ChosenAttention, RejectsWhatDoesNotFit) {
  const at::Tensor qkv = at::randn({1, 200, 24});
  const AttentionSpec fits{.heads = 1, .kv_heads = 1, .blocks = {64, 1}};
  EXPECT_NO_THROW(attention(qkv, fits));
  for (const BlockChoice& blocks : {BlockChoice{32, 1}, BlockChoice{0, 1}, BlockChoice{64, -1}, BlockChoice{64, 257}}) {
    AttentionSpec spec = fits;
    spec.blocks = blocks;
    EXPECT_THROW(attention(qkv, spec), c10::Error);
  }
  AttentionSpec windowed = fits, of_documents = fits;
  windowed.window = 10;
  of_documents.document_starts = at::zeros({1, 200}, at::kInt);
  EXPECT_THROW(attention(qkv, windowed), c10::Error);
  EXPECT_THROW(attention(qkv, of_documents), c10::Error);
}

}  // namespace
}  // namespace gpt::ops
