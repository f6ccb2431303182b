#include "gpt/generate/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace gpt::generate {
namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

at::Generator seeded(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

std::vector<double> row(const at::Tensor& probabilities) {
  const at::Tensor values = probabilities.to(at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

std::vector<double> filtered(const std::vector<double>& logits, const SamplingConfig& config) {
  return row(filtered_probabilities(at::tensor(logits, at::kFloat).unsqueeze(0), config));
}

// The definition, in float64: sort by probability, keep the first k, renormalise, keep the shortest start that reaches p,
// and of it those at least min_p times as likely as the first.
std::vector<double> reference(const std::vector<double>& logits, const SamplingConfig& config) {
  const size_t V = logits.size();
  std::vector<size_t> order(V);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const auto weight = [&](size_t i) { return std::exp((logits[i] - logits[order[0]]) / config.temperature); };
  size_t kept = config.top_k > 0 ? std::min<size_t>(config.top_k, V) : V;
  const auto total = [&] {
    double sum = 0;
    for (size_t i = 0; i < kept; ++i) sum += weight(order[i]);
    return sum;
  };
  const double all = total();
  double cumulative = 0;
  size_t nucleus = 0;
  while (nucleus < kept && (nucleus == 0 || cumulative < config.top_p)) cumulative += weight(order[nucleus++]) / all;
  kept = nucleus;
  while (weight(order[kept - 1]) < config.min_p) --kept;  // relative to the first, whose weight is 1
  const double sum = total();
  std::vector<double> result(V, 0.0);
  for (size_t i = 0; i < kept; ++i) result[order[i]] = weight(order[i]) / sum;
  return result;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << "token " << i;
}

TEST(Sampler, TemperatureByHand) {
  const std::vector<double> logits = {std::log(1.0), std::log(2.0), std::log(4.0)};
  expect_near(filtered(logits, {}), {1 / 7., 2 / 7., 4 / 7.}, 8 * kEpsilon);
  expect_near(filtered(logits, {.temperature = 0.5}), {1 / 21., 4 / 21., 16 / 21.}, 8 * kEpsilon);
  expect_near(filtered(logits, {.temperature = 0}), {0, 0, 1}, 0);
}

TEST(Sampler, TopKByHand) {
  const std::vector<double> logits = {std::log(1.0), std::log(2.0), std::log(4.0), std::log(2.0)};
  expect_near(filtered(logits, {.top_k = 1}), {0, 0, 1, 0}, 0);
  // A tie with the second stays.
  expect_near(filtered(logits, {.top_k = 2}), {0, 2 / 8., 4 / 8., 2 / 8.}, 8 * kEpsilon);
  expect_near(filtered(logits, {.top_k = 99}), {1 / 9., 2 / 9., 4 / 9., 2 / 9.}, 8 * kEpsilon);
}

TEST(Sampler, TopPByHand) {
  // 0.5, 0.25, 0.15, 0.1
  const std::vector<double> logits = {std::log(0.15), std::log(0.5), std::log(0.1), std::log(0.25)};
  // 0.5 is too little, 0.75 enough.
  expect_near(filtered(logits, {.top_p = 0.7}), {0, 2 / 3., 0, 1 / 3.}, 8 * kEpsilon);
  expect_near(filtered(logits, {.top_p = 0.4}), {0, 1, 0, 0}, 0);
  expect_near(filtered(logits, {.top_p = 1e-9}), {0, 1, 0, 0}, 0);  // always one
  expect_near(filtered(logits, {.top_p = 0.95}), {0.15, 0.5, 0.1, 0.25}, 8 * kEpsilon);
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  // After top-k 2 the two hold 2/3 and 1/3: p = 0.6 keeps the first alone, where of all four it would need both.
  const std::vector<double> logits = {std::log(0.15), std::log(0.5), std::log(0.1), std::log(0.25)};
  expect_near(filtered(logits, {.top_k = 2, .top_p = 0.6}), {0, 1, 0, 0}, 0);
}

TEST(Sampler, MinPByHand) {
  // 0.5, 0.25, 0.15, 0.1: relative to the likeliest 1, 0.5, 0.3, 0.2
  const std::vector<double> logits = {std::log(0.15), std::log(0.5), std::log(0.1), std::log(0.25)};
  expect_near(filtered(logits, {.min_p = 0.25}), {0.15 / 0.9, 0.5 / 0.9, 0, 0.25 / 0.9}, 8 * kEpsilon);
  expect_near(filtered(logits, {.min_p = 0.49}), {0, 2 / 3., 0, 1 / 3.}, 8 * kEpsilon);
  expect_near(filtered(logits, {.min_p = 0.51}), {0, 1, 0, 0}, 0);
  expect_near(filtered(logits, {.min_p = 0.1}), {0.15, 0.5, 0.1, 0.25}, 8 * kEpsilon);
  expect_near(filtered({3, 3, 2.999}, {.min_p = 1}), {0.5, 0.5, 0}, 8 * kEpsilon);  // ties with the likeliest stay
}

TEST(Sampler, MinPComparesWhatTemperatureMade) {
  // At temperature 2 the ratio 0.3 of the third token becomes its root, 0.55, and passes a threshold of 0.5.
  const std::vector<double> logits = {std::log(0.5), std::log(0.15)};
  EXPECT_EQ(filtered(logits, {.min_p = 0.5})[1], 0);
  EXPECT_GT(filtered(logits, {.temperature = 2, .min_p = 0.5})[1], 0);
}

TEST(Sampler, AgreesWithTheDefinition) {
  constexpr int64_t V = 300;
  at::Generator generator = seeded(1);
  for (const double temperature : {0.3, 1.0, 2.5}) {
    for (const int64_t top_k : {0, 1, 40, 1000}) {
      for (const double top_p : {0.05, 0.5, 0.9, 1.0}) {
        for (const double min_p : {0.0, 0.02, 0.4, 1.0}) {
          const at::Tensor logits = at::randn({V}, generator).mul_(3);
          const SamplingConfig config{.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
          SCOPED_TRACE(testing::Message() << "temperature " << temperature << " top_k " << top_k << " top_p " << top_p
                                          << " min_p " << min_p);
          // A logit rounds by at most |logit| eps <= 15 eps; divided by 0.3 and through exp that is a relative 50 eps,
          // twice with the sum's.
          expect_near(filtered(row(logits), config), reference(row(logits), config), 100 * kEpsilon);
        }
      }
    }
  }
}

// CTRL's rule in float64, token by token.
std::vector<double> penalized(std::vector<double> logits, const std::set<int64_t>& seen, double penalty) {
  for (const int64_t id : seen) logits[id] = logits[id] < 0 ? logits[id] * penalty : logits[id] / penalty;
  return logits;
}

TEST(Sampler, RepetitionPenaltyByHand) {
  const at::Tensor logits = at::tensor({2.0f, -2.0f, 0.0f, 4.0f}).unsqueeze(0);
  const at::Tensor context = at::tensor({int64_t{1}, int64_t{0}, int64_t{1}}).unsqueeze(0);
  expect_near(row(penalize_repetition(logits, context, 2)), {1, -4, 0, 4}, 0);  // the second occurrence counts no more
  expect_near(row(penalize_repetition(logits, context, 0.5)), {4, -1, 0, 4}, 0);
  expect_near(row(logits), {2, -2, 0, 4}, 0);  // the argument is left alone
}

TEST(Sampler, RepetitionPenaltyAgreesWithTheDefinition) {
  constexpr int64_t B = 3, V = 50, T = 40;
  const at::Tensor logits = at::randn({B, V}, seeded(11)).mul_(5);
  const at::Tensor context = at::randint(V, {B, T}, seeded(12), at::kLong);
  for (const double penalty : {0.8, 1.3, 5.0}) {
    const at::Tensor got = penalize_repetition(logits, context, penalty);
    for (int64_t b = 0; b < B; ++b) {
      const int64_t* const ids = context.const_data_ptr<int64_t>() + b * T;
      const std::vector<double> expected = penalized(row(logits[b]), {ids, ids + T}, penalty);
      // Two roundings of a value of at most 25 * 5.
      expect_near(row(got[b]), expected, 125 * kEpsilon);
    }
  }
  EXPECT_EQ(penalize_repetition(logits.to(at::kBFloat16), context, 1.3).scalar_type(), at::kFloat);
}

TEST(Sampler, RowsAreIndependent) {
  const SamplingConfig config{.temperature = 0.7, .top_k = 5, .top_p = 0.8};
  const at::Tensor logits = at::randn({4, 20}, seeded(2));
  const at::Tensor together = filtered_probabilities(logits, config);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(together.narrow(0, i, 1).equal(filtered_probabilities(logits.narrow(0, i, 1), config)));
  }
}

TEST(Sampler, ExtremeTemperaturesStayFinite) {
  const std::vector<double> logits = {60, 88, -80};
  expect_near(filtered(logits, {.temperature = 1e-300}), {0, 1, 0}, 0);
  expect_near(filtered(logits, {.temperature = 1e300}), {1 / 3., 1 / 3., 1 / 3.}, 8 * kEpsilon);
}

// A seed gives the text that LibTorch's own random numbers give, also where a draw follows another.
TEST(Sampler, DrawsWithTheNumbersOfTheGenerator) {
  at::Generator ours = seeded(20), theirs = seeded(20);
  for (const SamplingConfig& config : {SamplingConfig{}, SamplingConfig{.top_k = 40}, SamplingConfig{.top_p = 0.9}}) {
    for (int draw = 0; draw < 20; ++draw) {
      const at::Tensor logits = at::randn({2, 3001}, seeded(30 + draw)).mul_(3);
      const at::Tensor p = filtered_probabilities(logits, config);
      const at::Tensor expected = p.div(at::empty_like(p).exponential_(1.0, theirs)).argmax(1, true);
      EXPECT_TRUE(sample(logits, config, ours).equal(expected)) << "draw " << draw;
    }
  }
}

// Pearson's statistic of 20,000 draws; with 7 degrees of freedom it passes 24.3 once in a thousand seeds.
TEST(Sampler, DrawsFollowTheProbabilities) {
  constexpr int64_t kDraws = 20000;
  const SamplingConfig config{.temperature = 0.8, .top_k = 8};
  const at::Tensor logits = at::randn({1, 12}, seeded(3));
  at::Generator generator = seeded(4);
  const at::Tensor ids = sample(logits.expand({kDraws, 12}), config, generator);
  ASSERT_EQ(ids.sizes(), at::IntArrayRef({kDraws, 1}));
  const std::vector<double> p = row(filtered_probabilities(logits, config));
  double statistic = 0;
  int64_t counted = 0;
  for (int64_t i = 0; i < 12; ++i) {
    const double count = ids.eq(i).sum().item<int64_t>(), expected = p[i] * kDraws;
    counted += static_cast<int64_t>(count);
    if (expected == 0) {
      EXPECT_EQ(count, 0) << "token " << i << " was removed by top-k";
    } else {
      statistic += (count - expected) * (count - expected) / expected;
    }
  }
  EXPECT_EQ(counted, kDraws);
  EXPECT_LT(statistic, 24.3);
  EXPECT_GT(statistic, 0.3);  // nor is it a rounding of the expected counts: below this once in ten thousand
}

TEST(Sampler, GreedyTakesTheLargestAndDrawsNothing) {
  at::Generator generator = seeded(5);
  const at::Tensor before = generator.get_state();
  const at::Tensor ids =
      sample(at::tensor({1.0f, 3.0f, 2.0f, 9.0f, -1.0f, 0.0f}).view({2, 3}), {.temperature = 0}, generator);
  EXPECT_TRUE(ids.equal(at::tensor({int64_t{1}, int64_t{0}}).view({2, 1})));
  EXPECT_TRUE(generator.get_state().equal(before));
}

TEST(Sampler, SameSeedSameDraws) {
  const at::Tensor logits = at::randn({64, 50}, seeded(6));
  at::Generator a = seeded(7), b = seeded(7), c = seeded(8);
  const at::Tensor ids = sample(logits, {}, a);
  EXPECT_TRUE(ids.equal(sample(logits, {}, b)));
  EXPECT_FALSE(ids.equal(sample(logits, {}, c)));
}

TEST(Sampler, MarksRowsThatAreNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  at::Generator generator = seeded(9);
  const at::Tensor logits = at::tensor({0.0f, NAN, 1.0f, 0.0f, 0.0f, 5.0f, 0.0f, kInf, 1.0f}).view({3, 3});
  for (const double temperature : {0.0, 0.1}) {
    const at::Tensor ids = sample(logits, {.temperature = temperature}, generator);
    EXPECT_TRUE(ids.equal(at::tensor({int64_t{-1}, int64_t{2}, int64_t{-1}}).view({3, 1}))) << temperature;
  }
}

TEST(Sampler, TakesHalfPrecisionLogits) {
  const at::Tensor logits = at::randn({1, 30}, seeded(10)).to(at::kBFloat16);
  const at::Tensor p = filtered_probabilities(logits, {.top_p = 0.9});
  EXPECT_EQ(p.scalar_type(), at::kFloat);
  EXPECT_NEAR(p.sum().item<double>(), 1.0, 30 * kEpsilon);
}

}  // namespace
}  // namespace gpt::generate
