// The sequences of an update, from whichever of the three keys they follow.
#include "gpt/config/batch.h"

#include <gtest/gtest.h>

#include "config/faults.h"
#include "gpt/config/automatic.h"

namespace gpt::config {
namespace {

Config of_training(const std::string& keys) { return from_yaml("training: {" + keys + "}\n"); }

Config chosen(Config config, const Origins& origins) {
  choose_sizes(config, origins, {.gpu = false, .cores = 2, .characters = 1'000'000});
  return config;
}

TEST(TotalBatchSize, GivesTheNumberOfMicroSteps) {
  EXPECT_EQ(of_training("batch_size: 8, total_batch_size: 32").training.gradient_accumulation_steps, 4);
  EXPECT_EQ(of_training("total_batch_size: 192").training.gradient_accumulation_steps, 3);
  EXPECT_EQ(of_training("global_batch_size: 32, micro_batch_size: 16").training.gradient_accumulation_steps, 2);
  EXPECT_EQ(of_training("batch_size: 8, total_batch_size: auto").training.gradient_accumulation_steps, 1);
  EXPECT_EQ(of_training("batch_size: 8, gradient_accumulation_steps: 3").training.total_batch_size, std::nullopt);
}

TEST(DealOut, MicroBatchesAreAsLargeAsProcessesCanDivide) {
  struct Case {
    int64_t batch_size, steps, parts, expected_size, expected_steps;
  };
  const Case cases[] = {{16, 1, 1, 16, 1}, {16, 1, 2, 8, 2}, {12, 40, 8, 12, 40}, {12, 40, 3, 10, 48},
                        {5, 1, 2, 1, 5},   {6, 1, 4, 1, 6},  {7, 3, 3, 7, 3},     {4, 2, 8, 1, 8}};
  for (const Case& c : cases) {
    TrainingConfig training;
    training.batch_size = c.batch_size, training.gradient_accumulation_steps = c.steps;
    deal_out(training, c.parts);
    EXPECT_EQ(training.batch_size, c.expected_size) << c.batch_size << " " << c.steps << " " << c.parts;
    EXPECT_EQ(training.gradient_accumulation_steps, c.expected_steps)
        << c.batch_size << " " << c.steps << " " << c.parts;
  }
}

TEST(TotalBatchSize, IsKeptBySizesThatAreChosen) {
  Config config;
  for (const int64_t total : {64, 40, 3, 17}) {
    config.training.total_batch_size = total;
    const Config result = chosen(config, {{"training.total_batch_size", "--total_batch_size"}});
    EXPECT_EQ(result.training.batch_size * result.training.gradient_accumulation_steps, total);
    EXPECT_LE(result.training.batch_size, 16);
  }
  config.training.total_batch_size = 64, config.training.batch_size = 4;
  const Config given = chosen(config, {{"training.total_batch_size", "c"}, {"training.batch_size", "c"}});
  EXPECT_EQ(given.training.batch_size, 4);
  EXPECT_EQ(given.training.gradient_accumulation_steps, 16);
  // Larger updates are fewer: no text is read more than thirty times.
  config.training.batch_size = 64, config.training.total_batch_size = 160;
  const Config large = chosen(config, {{"training.total_batch_size", "c"}});
  EXPECT_LE(*large.training.schedule.max_steps * 160 * large.model.block_size, 30 * 900'000);
}

TEST(TotalBatchSize, OfWhatAChoiceSetIsAlwaysTheProduct) {
  // As --print-config writes it: the number of micro-steps stands there, too.
  Config config = of_training("batch_size: auto, gradient_accumulation_steps: 1, total_batch_size: 48");
  EXPECT_EQ(config.training.batch_size, 0);
  set_batch_size(config.training, 12);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(from_yaml(dump(config)).training.batch_size, 12);
  EXPECT_EQ(yaml_fault(dump(config)), "no fault");
}

TEST(LargestDivisor, IsTheFirstBelowTheLimit) {
  for (int64_t total = 1; total <= 60; ++total) {
    for (int64_t limit = 1; limit <= 70; ++limit) {
      int64_t expected = 0;
      for (int64_t n = 1; n <= std::min(total, limit); ++n) expected = total % n == 0 ? n : expected;
      ASSERT_EQ(largest_divisor(total, limit), expected) << total << " " << limit;
    }
  }
}

TEST(KeepChoices, TheBatchThatWasChosenStays) {
  Config saved = of_training("batch_size: auto, total_batch_size: 48");
  set_batch_size(saved.training, 12);
  const std::pair<const char*, const char*> same[] = {
      {"batch_size: auto, total_batch_size: 48", "as it was written"},
      {"batch_size: auto, gradient_accumulation_steps: 1, total_batch_size: 48", "as --print-config writes it"},
      {"batch_size: 12, total_batch_size: 48", "the choice written out"},
      {"batch_size: 12, gradient_accumulation_steps: 4", "the same update as a product"},
  };
  for (const auto& [keys, how] : same) {
    Config now;
    const Origins origins = read_yaml(std::string("model: {n_layer: 6}\ntraining: {") + keys + "}\n", "c.yaml", now);
    keep_choices(now, origins, saved);
    EXPECT_TRUE(difference(saved, now).empty()) << how;
  }
  for (const char* keys : {"batch_size: auto, total_batch_size: 96", "batch_size: auto, total_batch_size: 49",
                           "batch_size: 6, total_batch_size: 48", "batch_size: 12, gradient_accumulation_steps: 2"}) {
    Config now;
    const Origins origins = read_yaml(std::string("training: {") + keys + "}\n", "c.yaml", now);
    keep_choices(now, origins, saved);
    const std::vector<Change> changes = difference(saved, now);
    EXPECT_TRUE(std::any_of(changes.begin(), changes.end(), [](const Change& c) { return !c.safe_on_resume; })) << keys;
  }
}

}  // namespace
}  // namespace gpt::config
