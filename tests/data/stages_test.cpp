#include "gpt/data/stages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpt::data {
namespace {

DataConfig staged(std::vector<Stage> stages) {
  DataConfig config;
  config.stages = std::move(stages);
  return config;
}

TrainingConfig run_of(int64_t batch_size, int64_t accumulation, int64_t max_steps) {
  TrainingConfig config;
  config.batch_size = batch_size, config.gradient_accumulation_steps = accumulation,
  config.schedule.max_steps = max_steps;
  return config;
}

TEST(Stages, ShorterSequencesComeInLargerBatches) {
  const auto stages = stage_batches(staged({{0, 32, {{"a", 1}, {"main", 3}}}, {10, {}, {}}, {25, 100, {{"a", 1}}}}),
                                    run_of(4, 2, 40), 128);
  ASSERT_EQ(stages.size(), 3u);
  EXPECT_EQ(stages[0].batch_size, 16);
  EXPECT_EQ(stages[0].block_size, 32);
  EXPECT_EQ(stages[0].batches, 20);
  EXPECT_EQ(stages[0].mix, (std::vector<std::pair<size_t, double>>{{0, 1.0}, {1, 3.0}}));
  EXPECT_EQ(stages[1].batch_size, 4);
  EXPECT_EQ(stages[1].block_size, 128);
  EXPECT_EQ(stages[1].batches, 30);
  EXPECT_EQ(stages[1].mix, (std::vector<std::pair<size_t, double>>{{1, 1.0}}));
  EXPECT_EQ(stages[2].batch_size, 5);  // 512 / 100
  EXPECT_EQ(stages[2].batches, 30);
}

TEST(Stages, ARunWithoutThemIsOneOfTheMainData) {
  EXPECT_EQ(stage_sources({}), std::vector<std::string>{kMainSource});
  const auto stages = stage_batches({}, run_of(4, 2, 40), 128);
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_EQ(stages[0].batches, std::nullopt);  // epoch after epoch
  EXPECT_EQ(stages[0].batch_size, 4);
  EXPECT_EQ(stages[0].block_size, 128);
  EXPECT_EQ(stages[0].mix, (std::vector<std::pair<size_t, double>>{{0, 1.0}}));
}

TEST(Stages, SourcesComeInTheOrderOfAppearance) {
  const DataConfig config = staged({{0, {}, {{"b", 1}, {"a", 1}}}, {10, {}, {}}, {20, {}, {{"a", 1}, {"c", 1}}}});
  EXPECT_EQ(stage_sources(config), (std::vector<std::string>{"b", "a", kMainSource, "c"}));
}

}  // namespace
}  // namespace gpt::data
