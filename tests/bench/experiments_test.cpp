#include "gpt/bench/experiments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/tiny_bench_run.h"
#include "gpt/config/load.h"
#include "gpt/core/error.h"

namespace gpt::bench {
namespace {

// Seeds differ by 0.2; a technique changes the loss by 0.1 whatever the seed, by as much as seeds do, or not at all.
struct Laboratory {
  int64_t runs = 0, timings = 0, stop_after = 1000;
  std::vector<uint64_t> seeds = {};
  bool is_fast = false;

  std::optional<Learning> learn(const Config& config, const LearningLength& length) {
    if (runs++ == stop_after) return std::nullopt;
    seeds.push_back(config.seed);
    double loss = 3 + 0.2 * static_cast<double>(config.seed % 3);
    if (config.training.label_smoothing > 0) loss += 0.1;
    if (config.training.optimizer.gradient_clip == 0) loss += config.seed % 3 == 1 ? 0.4 : -0.1;
    if (config.training.optimizer.weight_decay == 0 || config.training.optimizer.beta2 == 0.5) loss -= 0.1;
    Learning result{.parameters = 10, .step_ms = 5, .tokens_per_update = 64, .threads = 1, .points = {}};
    for (int64_t i = 0; i <= 4; ++i)
      result.points.push_back({i * length.updates / 4, loss + 4 - static_cast<double>(i)});
    return result;
  }
  // Without weight decay a step takes twice the time; with another beta2 as much, but now a tenth more and now a tenth less.
  std::optional<Measurement> measure(const Config& config, const MeasurementLength&) {
    ++timings;
    if (config.training.optimizer.beta2 == 0.5) is_fast = !is_fast;
    const double uneven = is_fast ? 9 : 11;
    const auto& stages = config.data.stages;
    EXPECT_LE(stages.size(), 1) << "stages are timed by themselves";
    const auto length = [&] { return static_cast<double>(*stages[0].block_size); };
    const double step_ms = !stages.empty() ? 10 * length() / static_cast<double>(config.model.block_size)
                           : config.training.optimizer.weight_decay == 0 ? 20
                           : config.training.optimizer.beta2 == 0.5      ? uneven
                                                                         : 10;
    return Measurement{.step_ms = step_ms, .tokens_per_second = 64 / step_ms};
  }

  ExperimentComparison compare(const ScratchFolder& folder, double seconds = 1e4,
                               const std::vector<Experiment>& all = techniques()) {
    Config config;
    ExperimentLog log(folder.path(), config, seconds, "a processor");
    return compare_experiments(
        config, all, seconds, log,
        [this](const Config& c, const MeasurementLength& length) { return measure(c, length); },
        [this](const Config& c, const LearningLength& length) { return learn(c, length); },
        [](double, const std::string&) {});
  }

  static std::vector<Experiment> techniques() {
    return {{"nothing", "", [](Config&, int64_t) {}},
            {"smoothing", "label_smoothing: 0.1", [](Config& c, int64_t) { c.training.label_smoothing = 0.1; }},
            {"no clipping", "gradient_clip: 0", [](Config& c, int64_t) { c.training.optimizer.gradient_clip = 0; }},
            {"no decay", "weight_decay: 0", [](Config& c, int64_t) { c.training.optimizer.weight_decay = 0; }},
            {"uneven", "beta2: 0.5", [](Config& c, int64_t) { c.training.optimizer.beta2 = 0.5; }},
            {"impossible", "", [](Config&, int64_t) {}, "it needs a GPU"}};
  }
};

std::vector<std::string> verdicts_of(const ExperimentComparison& comparison) {
  std::vector<std::string> verdicts;
  for (const ExperimentRow& row : comparison.rows) verdicts.push_back(row.verdict);
  return verdicts;
}

TEST(Experiments, AreJudgedByTheDifferencesBetweenRunsOfTheSameSeed) {
  const ScratchFolder folder;
  Laboratory laboratory;
  const ExperimentComparison comparison = laboratory.compare(folder);
  EXPECT_TRUE(comparison.complete);
  // 0.1 less after the same tokens; after half of them, which take the time of the plain run, 1.9 more.
  EXPECT_EQ(verdicts_of(comparison),
            (std::vector<std::string>{"", "no difference", "worse", "cannot tell",
                                      "better at equal tokens, worse at equal time",
                                      "better at equal tokens, cannot tell at equal time", "it needs a GPU"}));
  EXPECT_EQ(laboratory.runs, 6 * kSeeds) << "the plain run and five techniques";
  EXPECT_DOUBLE_EQ(comparison.rows[4].runs[0].step_ms, 10) << "twice the plain run's 5, as timed in turn";
  const std::string text = to_markdown(findings(comparison).text);
  EXPECT_NE(text.find("| smoothing "), std::string::npos) << text;
  EXPECT_NE(text.find("+0.1000 ± 0.0000"), std::string::npos) << text;
}

TEST(Experiments, StagesCountByTheirShareOfTheUpdates) {
  const ScratchFolder folder;
  Laboratory laboratory;
  const ExperimentComparison comparison =
      laboratory.compare(folder, 1e4, {{"growing", "", [](Config& config, int64_t updates) {
                                          config.data.stages = growing_stages(config.model.block_size, updates);
                                        }}});
  ASSERT_EQ(comparison.rows.size(), 2);
  for (const double ratio : comparison.rows[1].step_ratios) EXPECT_NEAR(ratio, (0.25 + 0.5 + 1) / 3, 1e-3);
  EXPECT_NEAR(comparison.rows[1].runs[0].step_ms, 5 * (0.25 + 0.5 + 1) / 3, 1e-2);
}

TEST(Experiments, GoOnWhereTheyWereStopped) {
  const ScratchFolder folder;
  Laboratory whole, first{.stop_after = 7}, second;
  const ScratchFolder other;
  const auto expected = findings(whole.compare(other)).json;
  const ExperimentComparison stopped = first.compare(folder);
  EXPECT_FALSE(stopped.complete);
  EXPECT_EQ(stopped.rows.size(), 2) << "the plain run and one technique";
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    std::ofstream(entry.path(), std::ios::app) << R"({"of": "cut o)";  // as a kill leaves it
  EXPECT_EQ(findings(second.compare(folder)).json, expected);
  EXPECT_EQ(second.runs, whole.runs - 7);
  Laboratory third;
  EXPECT_EQ(findings(third.compare(folder)).json, expected);
  EXPECT_EQ(third.runs + third.timings, 0);
}

TEST(Experiments, WhatDoesNotFitIntoTheTimeIsNamed) {
  const ScratchFolder folder;
  Laboratory laboratory;
  const ExperimentComparison comparison = laboratory.compare(folder, /*seconds=*/1);
  EXPECT_TRUE(comparison.complete);
  EXPECT_EQ(comparison.rows.size(), 2) << "the plain run, and what costs nothing to name";
  EXPECT_EQ(comparison.left_out,
            (std::vector<std::string>{"nothing", "smoothing", "no clipping", "no decay", "uneven"}));
  EXPECT_NE(to_markdown(findings(comparison).text).find("nothing, smoothing, no clipping, no decay, uneven"),
            std::string::npos);
}

TEST(Experiments, AnIntervalIsStudents) {
  // numpy: mean, scipy.stats.t.ppf(0.975, 2) * std(ddof=1) / sqrt(3)
  const Difference difference = difference_of({0.1, 0.3, 0.2});
  EXPECT_DOUBLE_EQ(difference.mean, 0.2);
  EXPECT_NEAR(difference.half, 4.302653 * 0.1 / std::sqrt(3), 1e-4);
  EXPECT_TRUE(std::isinf(difference_of({0.1}).half)) << "nothing is known of how much they differ";
}

// Each of them, as it is set, is a configuration that this program accepts.
TEST(Experiments, EveryOneIsAValidConfiguration) {
  const ScratchFolder folder;
  Config wanted = tiny_bench_run(folder);
  const std::vector<Experiment> all = experiments(wanted);
  EXPECT_GT(all.size(), 5);
  for (const Experiment& experiment : all) {
    Config config = wanted;
    config.training.schedule.max_steps = 90;
    experiment.apply(config, 90);
    EXPECT_NE(config::dump(config), config::dump(wanted)) << experiment.name;
    EXPECT_NO_THROW(config::validate(config, "here", {})) << experiment.name;
  }
  wanted.training.schedule.lr_schedule = LrSchedule::constant;
  EXPECT_EQ(experiments(wanted).size(), all.size() - 1) << "what the configuration has is no experiment";
}

}  // namespace
}  // namespace gpt::bench
