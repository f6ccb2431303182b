#include "gpt/run/rate_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace gpt::run {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Losses whose lowest lies at a rate that falls with the length of the trial, and which rise steeply beyond it.
double valley(double rate, int64_t updates) {
  const double from_best = std::log2(rate / 2.1e-3) + std::log2(static_cast<double>(updates) / 200) / 2;
  return 2 + 0.1 * from_best * from_best * (from_best > 0 ? 2 : 1);
}

TEST(PlanSearch, FillsTheUpdatesThatThereAre) {
  const RateSearch search = plan_search(0, 1500, 600);
  ASSERT_EQ(search.rates.size(), 10u);
  EXPECT_DOUBLE_EQ(search.rates.front(), 6.25e-5);
  EXPECT_DOUBLE_EQ(search.rates.back(), 3.2e-2);
  ASSERT_EQ(search.lengths.size(), 3u);
  EXPECT_EQ(search.lengths[1], 2 * search.lengths[0]);
  EXPECT_EQ(search.lengths[2], 2 * search.lengths[1]);
  EXPECT_LE(10 * search.lengths[0] + 3 * search.lengths[1] + 3 * search.lengths[2], 1500);
  EXPECT_GT(search.lengths[2], 1500 / 8);
}

TEST(PlanSearch, NoTrialIsLongerThanTheRunAndNoRateBelowItsLowest) {
  EXPECT_EQ(plan_search(0, 1500, 80).lengths, (std::vector<int64_t>{53, 80}));
  EXPECT_EQ(plan_search(0, 10, 15).lengths, (std::vector<int64_t>{10, 15}));
  EXPECT_DOUBLE_EQ(plan_search(1e-3, 1500, 600).rates.front(), 1e-3);
  EXPECT_TRUE(plan_search(0.1, 1500, 600).rates.empty());
}

TEST(SearchRate, FindsTheLowestPointOfTheLongestTrials) {
  RateSearch search = plan_search(0, 1400, 10'000);
  search.run_steps = search.lengths.back();
  std::map<int64_t, std::set<double>> tried;
  const auto found = search_rate(search, [&](double rate, int64_t updates) {
    EXPECT_TRUE(tried[updates].insert(rate).second) << "twice at " << rate;
    return valley(rate, updates);
  });
  ASSERT_TRUE(found);
  EXPECT_NEAR(std::log2(found->rate / 2.1e-3), 0, 0.3);
  EXPECT_EQ(tried[search.lengths[0]].size(), 10u);
  EXPECT_LE(tried[search.lengths[2]].size(), 4u);
  size_t count = 0;
  for (const auto& [updates, rates] : tried) count += rates.size();
  EXPECT_EQ(found->trials.size(), count);
  EXPECT_NE(found->why.find("the parabola"), std::string::npos);
}

TEST(SearchRate, ALongerRunGetsALowerRate) {
  RateSearch search = plan_search(0, 1400, 10'000);
  const auto rate = [&](int64_t run_steps) {
    search.run_steps = run_steps;
    return search_rate(search, valley)->rate;
  };
  EXPECT_NEAR(rate(16 * search.lengths.back()), rate(search.lengths.back()) / 2, 1e-4);
  EXPECT_EQ(rate(0), rate(search.lengths.back())) << "one that is shorter than its trials";
}

// As trials tell how fast a machine is, and with that how long a run of max_time is.
TEST(SearchRate, TheLengthOfTheRunIsAskedAfterTheTrials) {
  const RateSearch search = plan_search(0, 1400, 5000);
  size_t made = 0;
  std::vector<size_t> asked_after;
  const auto try_rate = [&](double rate, int64_t updates) {
    ++made;
    return valley(rate, updates);
  };
  const auto found = search_rate(search, try_rate, [&] {
    asked_after.push_back(made);
    return 16 * search.lengths.back();
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(asked_after, std::vector<size_t>{found->trials.size()});
  EXPECT_EQ(search.lengths.back(), 200);
  EXPECT_NE(found->why.find("and one of 3,200 updates wants 0.50 times that"), std::string::npos) << found->why;
}

TEST(SearchRate, GoesOnWhereTheBestLiesAtAnEndOfWhatWasKept) {
  const RateSearch search{.rates = {1, 2, 4, 8, 16, 32}, .lengths = {10, 20}};
  const auto found = search_rate(search, [](double rate, int64_t updates) { return updates == 10 ? 40 - rate : rate; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rate, 1);
  EXPECT_TRUE(
      found->why.ends_with("; no lower rate is tried, and one may be better: set training.learning_rate to see"));
  const auto highest = search_rate(search, [](double rate, int64_t) { return 40 - rate; });
  EXPECT_TRUE(
      highest->why.ends_with("; no higher rate is tried, and one may be better: set training.learning_rate to see"));
  const auto between = search_rate(search, [](double rate, int64_t) { return std::abs(rate - 8); });
  EXPECT_EQ(between->why.find("is tried"), std::string::npos) << between->why;
}

TEST(SearchRate, DoesNotGoBeyondARateThatDiverges) {
  const RateSearch search{.rates = {1, 2, 4, 8, 16}, .lengths = {10, 20}};
  const auto found = search_rate(search, [](double rate, int64_t) {
    EXPECT_LE(rate, 8);
    return rate > 4 ? rate > 5 ? std::nan("") : kInfinite : 5 - rate;
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rate, 4) << "a parabola has no place there";
  EXPECT_EQ(found->trials.back().loss, kInfinite);
}

TEST(SearchRate, EndsWithWhatWasComparedWhenTheTimeIsUp) {
  const RateSearch search{.rates = {1, 2, 4, 8}, .lengths = {10, 20}};
  int64_t left = 0;
  const TryRate try_rate = [&](double rate, int64_t updates) -> std::optional<double> {
    if (left-- == 0) return std::nullopt;
    return std::abs(rate - (updates == 10 ? 4 : 2));
  };
  for (left = 0; left < 2;) {
    const int64_t trials = left;
    EXPECT_FALSE(search_rate(search, try_rate)) << trials;
    left = trials + 1;
  }
  const auto nearest = [&] { return std::exp2(std::round(std::log2(search_rate(search, try_rate)->rate))); };
  left = 3;
  EXPECT_EQ(nearest(), 4) << "the first round was not complete";
  left = 5;
  EXPECT_EQ(nearest(), 4) << "the second was not";
  left = 100;
  EXPECT_EQ(nearest(), 2);
}

TEST(SearchRate, FindsNothingWhereEveryRateDiverges) {
  EXPECT_FALSE(search_rate(plan_search(0, 1500, 600), [](double, int64_t) { return kInfinite; }));
}

}  // namespace
}  // namespace gpt::run
