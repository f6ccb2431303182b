#include "gpt/bench/architecture.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/tiny_bench_run.h"
#include "gpt/plan/resolve.h"

namespace gpt::bench {
namespace {

// A loss that falls by a tenth with every quarter of the updates, from where the configuration begins.
struct LearningMachine {
  int64_t stop_after = 1000, calls = 0;

  std::optional<Learning> operator()(const Config& config, const LearningLength& length) {
    if (calls++ == stop_after) return std::nullopt;
    const ModelConfig& model = config.model;
    double loss = 4 + 0.01 * static_cast<double>(config.seed - 1);
    if (model.mlp == Mlp::gelu) loss += 0.2;
    if (model.position == Position::learned) loss -= 0.2;
    // A machine that another program slows down more and more.
    Learning result{.parameters = 1000,
                    .step_ms = 10 * static_cast<double>(calls),
                    .tokens_per_update = 64,
                    .points = {}};
    for (int64_t i = 0; i <= 4; ++i)
      result.points.push_back({i * length.updates / 4, loss - 0.1 * static_cast<double>(i)});
    return result;
  }
};

ArchitectureComparison compare_on(LearningMachine& machine) {
  Config config;
  config.seed = 1;
  // LayerNorm learns as much with a token, and takes twice the time for it.
  const Measure measure = [](const Config& config, const MeasurementLength&) {
    const double step_ms = config.model.norm == Norm::layernorm ? 20 : 10;
    return Measurement{.step_ms = step_ms, .tokens_per_second = 64 / step_ms};
  };
  return compare_architectures(config, /*seconds=*/70, measure, std::ref(machine), [](double, const std::string&) {});
}

std::string verdict_of(const ArchitectureComparison& comparison, const std::string& name) {
  for (const Variant& variant : comparison.variants) {
    if (variant.name == name) return variant.verdict;
  }
  return "there is no " + name;
}

TEST(Architecture, EveryChoiceThatTheConfigurationDoesNotMake) {
  LearningMachine machine;
  const ArchitectureComparison comparison = compare_on(machine);  // configured: rmsnorm, swiglu, rope without smoothing
  EXPECT_TRUE(comparison.complete);
  std::vector<std::string> names;
  for (const Variant& variant : comparison.variants) names.push_back(variant.name);
  EXPECT_EQ(names, (std::vector<std::string>{"as configured", "another seed", "mlp: geglu", "mlp: gelu", "mlp: relu2",
                                             "norm: layernorm", "position: learned", "label_smoothing: 0.1"}));
  EXPECT_GT(comparison.length.updates, 400);
  EXPECT_GT(comparison.eval_batches, 0);
}

TEST(Architecture, IsJudgedByTokensAndByTime) {
  LearningMachine machine;
  const ArchitectureComparison comparison = compare_on(machine);
  EXPECT_EQ(verdict_of(comparison, "mlp: geglu"), "no difference");
  EXPECT_EQ(verdict_of(comparison, "mlp: gelu"), "worse");
  EXPECT_EQ(verdict_of(comparison, "position: learned"), "better");
  EXPECT_EQ(verdict_of(comparison, "norm: layernorm"), "no difference at equal tokens, worse at equal time");
  // Another seed begins 0.01 higher: what differs by less is no difference.
  EXPECT_EQ(verdict_of(comparison, "another seed"), "");
}

TEST(Architecture, StepsAreTimedInTurnWithTheFirst) {
  LearningMachine machine;
  const ArchitectureComparison comparison = compare_on(machine);
  for (const Variant& variant : comparison.variants)
    EXPECT_DOUBLE_EQ(variant.learning->step_ms, variant.name == "norm: layernorm" ? 20 : 10) << variant.name;
}

TEST(Architecture, TheLossBetweenTwoEvaluationsLiesOnALine) {
  Learning learning;
  learning.points = {{0, 4.0}, {10, 3.0}, {20, 2.5}};
  EXPECT_EQ(learning.loss_after(0), 4.0);
  EXPECT_EQ(learning.loss_after(5), 3.5);
  EXPECT_EQ(learning.loss_after(10), 3.0);
  EXPECT_EQ(learning.loss_after(18), 2.6);
  EXPECT_EQ(learning.loss_after(99), 2.5);
}

TEST(Architecture, ASignalKeepsWhatWasLearned) {
  LearningMachine machine;
  machine.stop_after = 3;
  const ArchitectureComparison comparison = compare_on(machine);
  EXPECT_FALSE(comparison.complete);
  EXPECT_EQ(comparison.variants.size(), 3u);
  EXPECT_EQ(verdict_of(comparison, "mlp: geglu"), "no difference");
  for (const Variant& variant : comparison.variants)
    EXPECT_NE(to_markdown(findings(comparison).text).find("| " + variant.name + " "), std::string::npos);
}

TEST(Architecture, TheLossIsEvaluatedAtEvenDistances) {
  const ScratchFolder folder;
  Config config = tiny_bench_run(folder);
  config.data.validation_fraction = 0.2;
  config.training.cadence.eval_batches = 1;
  const auto evaluated = [&config](int64_t updates, int64_t evaluations) {
    std::vector<int64_t> after;
    for (const auto& point : learn(plan::resolve(config), {.updates = updates, .evaluations = evaluations}).points)
      after.push_back(point.updates);
    return after;
  };
  EXPECT_EQ(evaluated(7, 3), (std::vector<int64_t>{0, 3, 5, 7}));
  EXPECT_EQ(evaluated(2, 5), (std::vector<int64_t>{0, 1, 2}));
}

TEST(Architecture, LearningSurvivesJson) {
  const Learning learning{
      .parameters = 1 << 20, .step_ms = 1.5, .tokens_per_update = 63.5, .threads = 3, .points = {{0, 4.0}, {9, 2.25}}};
  const Learning back = learning_from_json(to_json(learning));
  EXPECT_EQ(back.parameters, learning.parameters);
  EXPECT_EQ(back.step_ms, learning.step_ms);
  EXPECT_EQ(back.threads, 3);
  EXPECT_EQ(back.tokens_per_update, learning.tokens_per_update);
  ASSERT_EQ(back.points.size(), 2u);
  EXPECT_EQ(back.points[1].updates, 9);
  EXPECT_EQ(back.points[1].loss, 2.25);
}

}  // namespace
}  // namespace gpt::bench
