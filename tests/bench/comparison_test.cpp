#include "gpt/bench/comparison.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace gpt::bench {
namespace {

using Gains = std::vector<double>;

// `before` always makes 100 tokens per second, `after` the next of these.
struct PairsMachine {
  std::vector<double> speeds;
  std::vector<int64_t> updates = {};
  size_t calls = 0, calls_before = 0;
  std::vector<double> before = {};  // instead, where there are any

  std::optional<Measurement> operator()(const Config& config, const MeasurementLength& length) {
    updates.push_back(length.updates);
    const double speed = config.seed != 1 ? speeds.at(calls++) : before.empty() ? 100 : before.at(calls_before++);
    return Measurement{.tokens_per_second = speed, .peak_bytes = 1000, .loss = 4};
  }
};

std::optional<Comparison> compare_with(PairsMachine& machine, const Pairs& pairs) {
  Config before, after;
  before.seed = 1, after.seed = 2;
  return compare({before, {.warm_up = 1, .updates = 8}}, {after, {.warm_up = 1, .updates = 2}}, pairs,
                 std::ref(machine));
}

TEST(Comparisons, TakeTurnsAndKeepEachPair) {
  PairsMachine machine{{110, 90, 120}};
  const auto pair = compare_with(machine, {.seconds = 60, .most = 3});
  EXPECT_EQ(machine.updates, (std::vector<int64_t>{8, 2, 8, 2, 8, 2}));
  EXPECT_EQ(pair->gains, (Gains{1.1, 0.9, 1.2}));
  EXPECT_DOUBLE_EQ(pair->gain(), 1.1);
  EXPECT_EQ(pair->after.tokens_per_second, 110);
}

TEST(Comparisons, EndWhereTheNextPairWouldTakeTooLong) {
  PairsMachine machine{{110, 90, 120}};
  EXPECT_EQ(compare_with(machine, {.seconds = 0, .most = 3})->gains, Gains{1.1}) << "one is needed in any case";
}

TEST(Comparisons, EndWhereThreePairsOrMoreAgree) {
  const auto speeds_seen = [](std::vector<double> speeds) {
    PairsMachine machine{std::move(speeds)};
    return compare_with(machine, {.seconds = 60})->gains.size();
  };
  EXPECT_EQ(speeds_seen({110, 120, 130, 0}), 3u);
  EXPECT_EQ(speeds_seen({90, 80, 70, 0}), 3u);
  EXPECT_EQ(speeds_seen({101, 100, 99, 0}), 3u) << "no difference";
  EXPECT_EQ(speeds_seen({101, 100, 110, 100, 100, 100, 100, 100, 100, 0}), 9u) << "one may be right";
  EXPECT_EQ(speeds_seen({110, 120, 90, 110, 110, 110, 110, 110, 110, 0}), 9u);
}

TEST(Comparisons, WithinTheNoiseThereIsNoDifference) {
  EXPECT_EQ(change_of({1.019}), SpeedChange::none);
  EXPECT_EQ(change_of({1.021}), SpeedChange::faster);
  EXPECT_EQ(change_of({0.979}), SpeedChange::slower);
  EXPECT_EQ(change_of({1.0, 1.1}), SpeedChange::faster) << "the median of two is their mean";
  EXPECT_EQ(change_of({1.0, 1.03}), SpeedChange::none);
}

TEST(Comparisons, JudgementsSayWhereThePairsDisagree) {
  const auto reason = [](Gains gains, int64_t after_bytes = 1000) {
    return judge({{.peak_bytes = 1000, .loss = 4}, {.peak_bytes = after_bytes, .loss = 4}, std::move(gains)}, 4).reason;
  };
  EXPECT_EQ(reason({1.1, 1.2, 1.05}), "faster");
  EXPECT_EQ(reason({1.1, 1.2, 0.95}), "faster, though not in every pair");
  EXPECT_EQ(reason({0.9, 0.8, 0.97}), "slower here");
  EXPECT_EQ(reason({0.9, 0.8, 1.1}, 500), "slower here, though not in every pair, but smaller");
  EXPECT_EQ(reason({0.9, 1, 1.1}), "no difference here");
  EXPECT_EQ(reason({0.9, 1, 1.1}, 500), "smaller");
}

TEST(Comparisons, FewPairsAndAMachineThatChangesTellNothing) {
  const auto reason = [](Gains gains, double drift, double loss = 4) {
    return judge({{.peak_bytes = 1000, .loss = 4}, {.peak_bytes = 1000, .loss = loss}, std::move(gains), drift}, 4)
        .reason;
  };
  EXPECT_EQ(reason({1.5, 1.5}, 1), "cannot tell: only 2 pairs");
  EXPECT_EQ(reason({1.5}, 1), "cannot tell: only 1 pair");
  EXPECT_EQ(reason({1.5, 1.5, 1.5}, 1.33), "faster");
  EXPECT_EQ(reason({1.5, 1.5, 1.5}, 1.34), "cannot tell: the other side varied by a factor of 1.34");
  EXPECT_EQ(reason({1.5}, 2, /*loss=*/5), "the loss differs by +25.0 %") << "that needs no second run";

  PairsMachine machine{{110, 120, 130}};
  machine.before = {100, 50, 100};
  EXPECT_EQ(compare_with(machine, {.seconds = 60, .most = 3})->drift, 2);
}

}  // namespace
}  // namespace gpt::bench
