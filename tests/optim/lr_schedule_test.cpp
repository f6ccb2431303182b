#include "gpt/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "support/source_folder.h"

namespace gpt::optim {
namespace {

ScheduleConfig cosine() {
  ScheduleConfig config;
  config.learning_rate = 1e-3;
  config.min_lr = 1e-4;
  config.warmup_steps = 100;
  return config;
}

TEST(LrSchedule, WarmsUpLinearlyThenFollowsTheCosine) {
  const auto config = cosine();
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 0, 2100), 1e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 49, 2100), 50e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 99, 2100), 100e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 100, 2100), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 600, 2100), 1e-4 + 9e-4 * (2 + 1.4142135623730951) / 4);  // a quarter
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 1100, 2100), 5.5e-4);                                     // half way
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 2100, 2100), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 5000, 2100), 1e-4);
}

TEST(LrSchedule, ConstantKeepsTheWarmUp) {
  auto config = cosine();
  config.lr_schedule = LrSchedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 49, 2100), 50e-3 / 101);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 2099, 2100), 1e-3);
}

// PyTorch's own, by scripts/make_schedule_fixture.py.
class ScheduleFixtureTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.learning_rate = fixture_.at("learning_rate"), config_.min_lr = fixture_.at("min_lr");
    config_.warmup_steps = fixture_.at("warmup_steps").get<int64_t>();
    config_.decay_fraction = fixture_.at("decay_fraction");
  }

  void expect_rates(const char* name, LrSchedule schedule, DecayShape shape = DecayShape::linear) {
    SCOPED_TRACE(name);
    config_.lr_schedule = schedule, config_.decay_shape = shape;
    const nlohmann::json& rates = fixture_.at("rates").at(name);
    const int64_t steps = fixture_.at("max_steps");
    ASSERT_EQ(std::ssize(rates), steps);
    // Each of PyTorch's updates of a rate rounds a few times.
    const double tolerance = 4 * static_cast<double>(steps) * std::numeric_limits<double>::epsilon();
    for (int64_t step = 0; step < steps; ++step) {
      const double expected = rates[static_cast<size_t>(step)];
      EXPECT_NEAR(learning_rate_at(config_, step, steps), expected, tolerance * config_.learning_rate) << step;
    }
  }

  const nlohmann::json fixture_ =
      nlohmann::json::parse(std::ifstream(test::source_folder() + "/tests/fixtures/schedules.json"));
  ScheduleConfig config_;
};

TEST_F(ScheduleFixtureTest, RatesAreThoseOfPyTorchsSchedulers) {
  expect_rates("cosine", LrSchedule::cosine);
  expect_rates("constant", LrSchedule::constant);
  expect_rates("linear", LrSchedule::linear);
  expect_rates("wsd linear", LrSchedule::wsd, DecayShape::linear);
  expect_rates("wsd 1-sqrt", LrSchedule::wsd, DecayShape::one_minus_sqrt);
}

TEST_F(ScheduleFixtureTest, PlateausAreThoseOfPyTorchsReduceLROnPlateau) {
  config_.lr_schedule = LrSchedule::plateau;
  config_.plateau.factor = fixture_.at("plateau_factor"), config_.plateau.threshold = fixture_.at("plateau_threshold");
  int64_t lowered = 0;
  for (const nlohmann::json& expected : fixture_.at("plateau")) {
    config_.plateau.patience = expected.at("patience"), config_.plateau.cooldown = expected.at("cooldown");
    Plateau plateau;
    for (size_t i = 0; i < expected.at("losses").size(); ++i) {
      const nlohmann::json& loss = expected["losses"][i];
      const double before = learning_rate_at(config_, 50, 60, plateau), rate = expected.at("rates")[i];
      const bool is_lower = take_note(plateau, config_, loss.is_null() ? std::nan("") : loss.get<double>());
      EXPECT_NEAR(learning_rate_at(config_, 50, 60, plateau), rate, 1e-15) << i;
      EXPECT_EQ(is_lower, before - rate > 1e-9) << i;
      lowered += is_lower;
    }
  }
  EXPECT_EQ(lowered, 9);
}

TEST(LrSchedule, TheRatesBeforeTheDecayDoNotDependOnTheLength) {
  ScheduleConfig config = cosine();
  config.lr_schedule = LrSchedule::wsd;
  ASSERT_EQ(steps_before_decay(config, 1000), 800);
  for (int64_t step = 0; step <= 800; ++step)
    EXPECT_EQ(learning_rate_at(config, step, 1000), learning_rate_at(config, step, 5000)) << step;
  EXPECT_LT(learning_rate_at(config, 801, 1000), config.learning_rate);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 1000, 1000), config.min_lr);
  config.decay_fraction = 1;
  EXPECT_EQ(steps_before_decay(config, 1000), 100) << "it follows the warm-up";
  config.decay_fraction = 0.01, config.warmup_steps = 0;
  EXPECT_EQ(steps_before_decay(config, 20), 19) << "one update at least";
  EXPECT_EQ(steps_before_decay(cosine(), 1000), std::nullopt);
}

TEST(LrSchedule, APlateauThatLastsDoesNotGoBelowTheLowestRate) {
  ScheduleConfig config = cosine();
  config.lr_schedule = LrSchedule::plateau;
  config.plateau = {.factor = 0.3, .patience = 0};
  Plateau plateau;
  EXPECT_FALSE(take_note(plateau, config, 2));
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 49, 2100, plateau), 50e-3 / 101) << "the warm-up stays";
  EXPECT_TRUE(take_note(plateau, config, 2));
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 500, 2100, plateau), 3e-4);
  EXPECT_TRUE(take_note(plateau, config, 2));
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 500, 2100, plateau), 1e-4);
  EXPECT_FALSE(take_note(plateau, config, 2)) << "there is nothing to be said any more";
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 500, 2100, plateau), 1e-4);
}

TEST(LrSchedule, AutomaticWarmUpIsAThousandStepsAtMostATenthOfTheRun) {
  ScheduleConfig config;
  EXPECT_EQ(warmup_steps(config, 50000), 1000);
  EXPECT_EQ(warmup_steps(config, 5000), 500);
  EXPECT_EQ(warmup_steps(config, 5), 0);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 0, 5), config.learning_rate);
  config.warmup_steps = 0;
  EXPECT_EQ(warmup_steps(config, 50000), 0);
}

}  // namespace
}  // namespace gpt::optim
