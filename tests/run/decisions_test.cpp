// Which decisions a run takes that begins, resumes or replays a file; and that it takes none that is not on the disk.
#include "gpt/run/decisions.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "distributed/local_group.h"
#include "gpt/core/file.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

checkpoint::Decision factor(int64_t step, double value) { return {step, kLearningRateFactor, value}; }

class DecisionsTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::vector<checkpoint::Decision>& decisions) const {
    std::ofstream file(root_ / name);
    for (const auto& [step, what, value] : decisions)
      file << R"({"step":)" << step << R"(,"what":")" << what << R"(","value":)" << value << "}\n";
    return root_ / name;
  }
  // The beginning of a run that goes on from this step.
  static Beginning at(int64_t step, std::vector<checkpoint::Decision> taken, bool continues = true) {
    Beginning begins{.start = StartingPoint{.checkpoint = {}, .path = "ckpt.pt", .continues = continues},
                     .initial = {}};
    begins.start->checkpoint.step = step;
    begins.start->checkpoint.decisions = std::move(taken);
    return begins;
  }
  std::vector<checkpoint::Decision> to_come(const Beginning& begins, const std::string& replay = "") const {
    return decisions_to_come(folder_, begins, replay);
  }

  const ScratchFolder root_;
  const Folder folder_{root_ / "."};
};

using Several = std::vector<checkpoint::Decision>;

TEST_F(DecisionsTest, ARunThatGoesOnTakesItsOwnAgain) {
  write(kDecisionsFile, {factor(5, 0.5), factor(9, 0.25), factor(12, 0.125)});
  EXPECT_EQ(to_come(at(9, {factor(5, 0.5)})), (Several{factor(9, 0.25), factor(12, 0.125)}));
  EXPECT_EQ(to_come(at(9, {factor(5, 0.5), factor(9, 0.25)})), Several{factor(12, 0.125)});
  EXPECT_EQ(to_come(at(9, {factor(5, 0.5)}, /*continues=*/false)), Several());
  EXPECT_EQ(to_come({}), Several()) << "a run that begins";
}

TEST_F(DecisionsTest, OneThatTheCheckpointLacksIsLeftOutWithAWord) {
  write(kDecisionsFile, {factor(5, 0.5), factor(12, 0.125)});
  test::CapturedLog log;
  EXPECT_EQ(to_come(at(9, {})), Several{factor(12, 0.125)});
  EXPECT_NE(log.text().find("decisions.jsonl:1 is of step 5, and the run, which is at step 9, has not decided that"),
            std::string::npos)
      << log.text();
}

TEST_F(DecisionsTest, AReplayedFileComesBesideTheRunsOwn) {
  const std::string replay = write("replay", {factor(5, 0.5), factor(11, 2), factor(12, 0.125)});
  EXPECT_EQ(to_come({}, replay), (Several{factor(5, 0.5), factor(11, 2), factor(12, 0.125)}));
  write(kDecisionsFile, {factor(5, 0.5), factor(12, 0.125), factor(13, 1)});
  EXPECT_EQ(to_come(at(9, {factor(5, 0.5)}), replay), (Several{factor(11, 2), factor(12, 0.125), factor(13, 1)}));
  EXPECT_ERROR(to_come(at(9, {}, /*continues=*/false), replay), ExitCode::config,
               "replay:1: --replay cannot take this decision of step 5: the run is at step 9 already");
  write(kDecisionsFile, {factor(12, 0.25)});
  EXPECT_ERROR(to_come(at(9, {factor(5, 0.5)}), replay), ExitCode::config,
               "replay:3: --replay cannot take this decision of step 12: the run has decided that "
               "learning_rate_factor is 0.25");
}

TEST_F(DecisionsTest, TheFileHasWhatTheRunTakes) {
  begin_decisions(folder_, {}, {});
  EXPECT_FALSE(std::filesystem::exists(folder_.decisions_path()));
  begin_decisions(folder_, {factor(5, 0.1)}, {factor(9, 1e-300), factor(12, 0.125)});
  const Several all = {factor(5, 0.1), factor(9, 1e-300), factor(12, 0.125)};
  EXPECT_EQ(read_decisions(folder_.decisions_path()), all) << "to the bit";
  begin_decisions(folder_, {factor(5, 0.1)}, {factor(9, 0.25)});
  EXPECT_EQ(read_decisions(folder_.decisions_path()), (Several{factor(5, 0.1), factor(9, 0.25)}));
  EXPECT_EQ(read_decisions(root_ / "decisions.old.jsonl"), (Several{factor(9, 1e-300), factor(12, 0.125)}));
}

// Each of three processes has the first one's folder, as on one machine.
TEST_F(DecisionsTest, WhatIsNotOnTheDiskIsDecidedInNoProcess) {
  const data::Corpus corpus = some_corpus();
  const Config config = tiny_config(corpus);
  test::in_ranks(3, [&](const distributed::Group& group) {
    const auto wait = [&group] { (void)group.communicator()->is_any(false); };
    State state(config, corpus, at::kCPU, device::Precision{});
    state.step = 7;
    Decisions decisions(state, folder_, {factor(7, 0.75), factor(9, 0.25)}, group.communicator(),
                        /*schedule_steps=*/100);
    EXPECT_TRUE(decisions.decide(kLearningRateFactor, 0.5));
    EXPECT_EQ(state.learning_rate_factor, 0.75) << "what was decided before for this step";
    EXPECT_FALSE(std::filesystem::exists(folder_.decisions_path())) << "it is not written again";
    wait();
    state.step = 8;
    EXPECT_TRUE(decisions.take_due().empty());
    EXPECT_TRUE(decisions.decide(kLearningRateFactor, 0.5));
    EXPECT_EQ(read_decisions(folder_.decisions_path()), (Several{factor(7, 0.75), factor(8, 0.5), factor(9, 0.25)}));
    state.step = 9;
    EXPECT_EQ(decisions.take_due(), Several{factor(9, 0.25)});
    EXPECT_EQ(state.learning_rate_factor, 0.25);
    wait();
    if (group.is_first()) {
      std::filesystem::remove(folder_.decisions_path());
      std::filesystem::create_directories(folder_.decisions_path() + "/in the way");
    }
    wait();
    state.step = 10;
    EXPECT_FALSE(decisions.decide(kLearningRateFactor, 0.5));
    EXPECT_EQ(state.learning_rate_factor, 0.25);
    EXPECT_EQ(state.decisions, (Several{factor(7, 0.75), factor(8, 0.5), factor(9, 0.25)}));
  });
}

// As a person decides who changes his mind while the run is paused.
TEST_F(DecisionsTest, TheLastOneOfAStepCountsWhateverACheckpointHas) {
  const data::Corpus corpus = some_corpus();
  const Config config = tiny_config(corpus);
  State state(config, corpus, at::kCPU, device::Precision{});
  state.step = 7;
  Decisions decisions(state, folder_, {factor(9, 0.25)}, distributed::alone(), /*schedule_steps=*/100);
  EXPECT_TRUE(decisions.decide(kLearningRateFactor, 0.5));
  EXPECT_TRUE(decisions.decide(kSteps, 50));
  const Several saved = state.decisions;
  EXPECT_TRUE(decisions.decide(kLearningRateFactor, 0.75));
  EXPECT_EQ(state.learning_rate_factor, 0.75);
  const checkpoint::Decision length{7, kSteps, 50};
  EXPECT_EQ(state.decisions, (Several{factor(7, 0.75), length}));
  EXPECT_EQ(read_decisions(folder_.decisions_path()), (Several{factor(7, 0.75), length, factor(9, 0.25)}));
  const Several again = to_come(at(7, saved));
  EXPECT_EQ(again, (Several{factor(7, 0.75), factor(9, 0.25)})) << "the checkpoint of step 7 was written before";
  begin_decisions(folder_, saved, again);
  EXPECT_EQ(read_decisions(folder_.decisions_path()), (Several{factor(7, 0.75), length, factor(9, 0.25)}));
  EXPECT_FALSE(std::filesystem::exists(root_ / "decisions.old.jsonl"));
}

TEST_F(DecisionsTest, ALengthThatTheRunIsToldStretchesTheRestOfItsSchedule) {
  const data::Corpus corpus = some_corpus();
  const Config config = tiny_config(corpus);
  State state(config, corpus, at::kCPU, device::Precision{});
  state.step = 37;
  Decisions decisions(state, folder_, {}, distributed::alone(), /*schedule_steps=*/100);
  EXPECT_TRUE(decisions.decide(kSteps, 163));
  EXPECT_EQ(state.course, (optim::Course{.planned = 100, .total = 163, .since = 37, .position = 37}));
  EXPECT_EQ(state.course.position_at(37), 37) << "the rate does not jump";
  EXPECT_EQ(state.course.position_at(100), 68.5);
  EXPECT_EQ(state.course.position_at(163), 100);
  EXPECT_TRUE(decisions.decide(kSteps, 47));
  EXPECT_EQ(state.course, (optim::Course{.planned = 100, .total = 47, .since = 37, .position = 37}))
      << "as if it were the first";
  state.step = 42;
  EXPECT_TRUE(decisions.decide(kSteps, 52));
  EXPECT_EQ(state.course, (optim::Course{.planned = 100, .total = 52, .since = 42, .position = 68.5}));
}

TEST(LengthOfARun, IsFixedByATimeAndByStages) {
  Config config;
  EXPECT_EQ(why_length_is_fixed(config.training.schedule, config.data), "");
  config.training.schedule.max_time.seconds = 60;
  EXPECT_NE(why_length_is_fixed(config.training.schedule, config.data).find("training.max_time"), std::string::npos);
  config.training.schedule.max_time.seconds = 0;
  config.data.stages.emplace_back();
  EXPECT_NE(why_length_is_fixed(config.training.schedule, config.data).find("data.stages"), std::string::npos);
}

}  // namespace
}  // namespace gpt::run
