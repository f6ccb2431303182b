#include "gpt/report/early_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace gpt {
namespace {

RunHistory history_of(const std::vector<std::pair<int64_t, double>>& losses) {
  RunHistory history;
  for (const auto& [step, loss] : losses)
    history.add(EvaluationRecord{.step = step, .loss = loss, .bits_per_byte = loss / 2});
  return history;
}

TEST(EarlyLossTest, IsThatOfTheFirstValidationAfterAThirdThatIsNotTheFirst) {
  const RunHistory history = history_of({{10, 4}, {20, 3}, {30, 2}, {40, 1}});
  EXPECT_EQ(early_loss(history, 90)->loss, 2);
  EXPECT_EQ(*early_loss(history, 90)->bits_per_byte, 1);
  EXPECT_EQ(early_loss(history, 91)->loss, 1);
  EXPECT_EQ(early_loss(history, 30)->loss, 3) << "the first one is too early to compare anything";
  EXPECT_FALSE(early_loss(history, 121));
  EXPECT_FALSE(early_loss(history_of({{50, 4}}), 90));
}

TEST(EarlyLossTest, AtMostHalfOfTheRunsArePoor) {
  const auto loss = [](double value) { return std::optional(EarlyLoss{value, value / 3}); };
  EXPECT_EQ(find_poor({loss(2), loss(1)}), (std::vector{true, false}));
  EXPECT_EQ(find_poor({loss(2), loss(3), loss(1)}), (std::vector{false, true, false}));
  EXPECT_EQ(find_poor({loss(2), std::nullopt, loss(1), loss(4), loss(3)}),
            (std::vector{false, false, false, true, true}))
      << "one that was never judged goes on";
  EXPECT_EQ(find_poor({loss(NAN), loss(3)}), (std::vector{true, false}));
  EXPECT_EQ(find_poor({loss(1)}), (std::vector{false}));
  EXPECT_EQ(find_poor({std::nullopt, std::nullopt}), (std::vector{false, false}));
}

TEST(EarlyLossTest, RunsAreComparedByBitsPerByteWhereAllHaveThem) {
  const EarlyLoss of_bytes{1.5, 2.1}, of_words{4.0, 1.9}, without{2.0, std::nullopt};
  EXPECT_EQ(find_poor({of_bytes, of_words}), (std::vector{true, false}));
  EXPECT_EQ(find_poor({of_words, without}), (std::vector{true, false}));
}

}  // namespace
}  // namespace gpt
