// Which length a run goes on with, and which of the decisions to come hold for it.
#include "gpt/run/find_length.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "gpt/run/decisions.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

// A run at its 100th update, with a time that nothing else limits, and with 800 updates in it.
class FindLengthTest : public testing::Test {
 protected:
  using Decided = std::vector<checkpoint::Decision>;

  FindLengthTest() {
    schedule_.max_time.seconds = 300;
    checkpoint_.config = config_;
    checkpoint_.step = 100;
    checkpoint_.course = {.planned = 800, .total = 800};
  }

  // As the run goes on with the configuration as it is then.
  Beginning found(Decided decisions, bool is_replay = false) const {
    run::Setup setup{config_, corpus_, device::describe_device(at::kCPU), device::Precision{}};
    Beginning begins{.start = StartingPoint{.checkpoint = checkpoint_, .path = "ckpt.pt"}, .initial = {}};
    begins.decisions = std::move(decisions);
    find_length(setup, begins, is_replay);
    return begins;
  }

  const data::Corpus corpus_ = some_corpus();
  Config config_ = tiny_config(corpus_);
  ScheduleConfig& schedule_ = config_.training.schedule;
  checkpoint::Checkpoint checkpoint_;
  const checkpoint::Decision factor_{130, kLearningRateFactor, 0.5};
};

TEST_F(FindLengthTest, LengthsOfAnotherTimeAreDecidedAnew) {
  const Decided decisions{{120, kTotalSteps, 820}, factor_, {140, kTotalSteps, 790}};
  EXPECT_EQ(found(decisions).decisions, decisions) << "of this time";
  schedule_.max_time.seconds = 600;
  EXPECT_EQ(found(decisions).decisions, Decided{factor_});
  EXPECT_EQ(found(decisions, /*is_replay=*/true).decisions, decisions);
  EXPECT_EQ(found(decisions).total_steps, std::nullopt) << "it has a course";
}

TEST_F(FindLengthTest, SoAreThoseOfAnotherLimit) {
  const Decided decisions{{120, kTotalSteps, 820}, factor_};
  schedule_.max_steps = 500;
  EXPECT_EQ(found(decisions).decisions, Decided{factor_});
  schedule_.max_steps.reset(), schedule_.epochs = 2;
  EXPECT_EQ(found(decisions).decisions, Decided{factor_});
}

// The start with the new length was killed before its first checkpoint. What it began with it has decided at this one.
TEST_F(FindLengthTest, ThoseOfALaterStartWithThisLengthAreTakenAgain) {
  const Decided longer{{100, kTotalSteps, 1600}, {120, kTotalSteps, 1650}, factor_},
      limited{{100, kTotalSteps, 500}, factor_};
  schedule_.max_time.seconds = 600;
  EXPECT_EQ(found(longer).decisions, longer);
  schedule_.max_time.seconds = 300, schedule_.max_steps = 500;
  EXPECT_EQ(found(limited).decisions, limited);
  EXPECT_EQ(found(longer).decisions, Decided{factor_});
}

// The decision stands for what the time of a few updates would say.
TEST_F(FindLengthTest, ARunThatWasToldItsLengthHasAnotherOneWithATime) {
  checkpoint_.config.training.schedule.max_time.seconds = 0;
  checkpoint_.course = {.planned = 150, .total = 200, .since = 90, .position = 90};
  const Beginning begins = found({{100, kTotalSteps, 700}, factor_, {140, kSteps, 250}});
  EXPECT_EQ(begins.total_steps, 700);
  EXPECT_EQ(begins.decisions, Decided{factor_});
}

// So gpt-diagnose knows it, too. With 10 updates in an epoch.
TEST_F(FindLengthTest, TheLengthThatARunWasToldIsThatOfItsPlan) {
  schedule_.max_time.seconds = 0, schedule_.max_steps = 1000;
  checkpoint_.config = config_;
  checkpoint_.step = 1200;
  checkpoint_.course = {.planned = 1000, .total = 1500, .since = 900, .position = 900};
  const TimedRun run{.batches_per_epoch = 20};
  const auto plan = plan_along_course(config_, run, &checkpoint_);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->total_steps, 1500);
  EXPECT_FALSE(plan_along_course(config_, run, nullptr)) << "the configuration says how long it is";
  schedule_.max_steps = 2000;
  EXPECT_FALSE(plan_along_course(config_, run, &checkpoint_)) << "so it does of another length";
}

}  // namespace
}  // namespace gpt::run
