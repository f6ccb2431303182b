#include "gpt/evaluate/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <random>
#include <string>
#include <vector>

namespace gpt::evaluate {
namespace {

std::map<std::string, Metric> by_name(Form form, const std::vector<Outcome>& outcomes, int64_t window = 8) {
  std::map<std::string, Metric> result;
  for (const Metric& metric : metrics_of(form, outcomes, window)) result[metric.name] = metric;
  return result;
}

TEST(Outcomes, TheFirstOfEqualAnswersCounts) {
  Example example{.requests = {}, .label = 1, .lengths = {{2, 2}, {4, 8}, {1, 1}}};
  const auto judged = [&](std::vector<double> likelihoods) {
    std::vector<Score> scores;
    for (const double value : likelihoods) scores.push_back({value, false});
    const Outcome outcome = outcome_of(Form::choices, example, scores);
    return std::vector<double>{outcome.acc, outcome.acc_norm, outcome.acc_bytes};
  };
  EXPECT_EQ(judged({-3, -2, -4}), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(judged({-2, -2, -2}), (std::vector<double>{0, 1, 1}));  // -1, -0.5, -2 a character; -1, -0.25, -2 a byte
  EXPECT_EQ(judged({-2, -4, -2}), (std::vector<double>{0, 0, 1}));  // -1 and -1 a character
  example.lengths[1] = {0, 0};                                      // a length of nothing: minus infinity
  EXPECT_EQ(judged({-3, -2, -4}), (std::vector<double>{1, 0, 0}));
}

TEST(Outcomes, OtherExamplesHaveOtherHashes) {
  const Example example{.requests = {{{1, 2, 3}, 1}}, .label = 1, .lengths = {{2, 2}}};
  Example other = example;
  EXPECT_EQ(other.hash(), example.hash());
  other.label = 0;
  EXPECT_NE(other.hash(), example.hash());
  other = example;
  other.requests[0].scored = 2;
  EXPECT_NE(other.hash(), example.hash());
}

TEST(Metrics, AShareHasTheErrorOfAMean) {
  std::vector<Outcome> outcomes(10, Outcome{.log_likelihoods = {-1, -2}});
  for (int i = 0; i < 3; ++i) outcomes[i].acc = 1;
  const auto metrics = by_name(Form::choices, outcomes);
  EXPECT_DOUBLE_EQ(metrics.at("acc").value, 0.3);
  EXPECT_DOUBLE_EQ(metrics.at("acc").standard_error.value(), std::sqrt(0.3 * 0.7 / 9));
  // The shares x with (0.3 - x)^2 = 1.96^2 x (1 - x) / 10.
  EXPECT_NEAR(metrics.at("acc").interval->low, 0.10779126740630103, 1e-12);
  EXPECT_NEAR(metrics.at("acc").interval->high, 0.6032218525388546, 1e-12);
  EXPECT_FALSE(by_name(Form::choices, {outcomes[0]}).at("acc").interval);
}

TEST(Metrics, PerplexityOfEndingsIsPerEnding) {
  const std::vector<Outcome> outcomes{{.log_likelihoods = {-1}}, {.log_likelihoods = {-3}}};
  const Metric perplexity = by_name(Form::cloze, outcomes).at("perplexity");
  EXPECT_DOUBLE_EQ(perplexity.value, std::exp(2));
  EXPECT_DOUBLE_EQ(perplexity.standard_error.value(), std::exp(2) * 1);
  EXPECT_DOUBLE_EQ(perplexity.interval->low, std::exp(2 - 1.959963984540054));
}

TEST(Metrics, ATextCountsTokensBytesAndWords) {
  std::vector<Outcome> outcomes{{.log_likelihoods = {-20}, .tokens = 8},
                                {.log_likelihoods = {-10}, .tokens = 2, .bytes = 30, .words = 6}};
  const auto metrics = by_name(Form::text, outcomes);
  EXPECT_DOUBLE_EQ(metrics.at("loss").value, 3);
  EXPECT_DOUBLE_EQ(metrics.at("perplexity").value, std::exp(3));
  EXPECT_DOUBLE_EQ(metrics.at("bits_per_byte").value, 1 / std::numbers::ln2);
  EXPECT_DOUBLE_EQ(metrics.at("byte_perplexity").value, std::exp(1));
  EXPECT_DOUBLE_EQ(metrics.at("word_perplexity").value, std::exp(5));
}

// Documents of which each has a level of its own, so that its windows are alike: the interval must know that, and hold the true mean in
// about 95 of 100 samples. Of 400 samples a share below 0.91 or above 0.985 would be wider off than chance allows (3.5 standard errors).
TEST(Metrics, TheIntervalHoldsTheTrueMean) {
  std::mt19937_64 draw(5);
  std::normal_distribution<double> level(3, 1), noise(0, 0.3);
  int held = 0;
  constexpr int kSamples = 400;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<Outcome> outcomes;
    for (int64_t document = 0; document < 60; ++document) {
      const double of_document = level(draw);
      for (int window = 0; window < 6; ++window)
        outcomes.push_back({.log_likelihoods = {-8 * (of_document + noise(draw))},
                            .tokens = 8,
                            .document = document,
                            .bytes = 1,
                            .words = 1});
    }
    const Interval interval = *by_name(Form::text, outcomes).at("loss").interval;
    held += interval.low < 3 && 3 < interval.high;
  }
  EXPECT_GT(held, 0.91 * kSamples);
  EXPECT_LT(held, 0.985 * kSamples);
}

TEST(Metrics, AStrideDoesNotMakeATextLongerThanItIs) {
  // The same text in windows of 8 and, with a stride of 2, in four times as many: neighbours are not independent.
  std::vector<Outcome> whole, parts;
  for (int i = 0; i < 40; ++i) {
    const double loss = 3 + (i * 7 % 5);
    whole.push_back({.log_likelihoods = {-8 * loss}, .tokens = 8, .bytes = 1, .words = 1});
    for (int k = 0; k < 4; ++k) parts.push_back({.log_likelihoods = {-2 * loss}, .tokens = 2, .bytes = 1, .words = 1});
  }
  EXPECT_DOUBLE_EQ(by_name(Form::text, whole).at("loss").standard_error.value(),
                   by_name(Form::text, parts).at("loss").standard_error.value());
}

}  // namespace
}  // namespace gpt::evaluate
