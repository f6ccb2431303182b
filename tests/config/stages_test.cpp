#include <gtest/gtest.h>

#include "config/faults.h"

namespace gpt::config {
namespace {

std::vector<Stage> stages_of(const std::string& yaml) {
  Config config;
  read_yaml(yaml, "c.yaml", config);
  return config.data.stages;
}

TEST(Stages, ReadsBlockAndFlowStyle) {
  const std::vector<Stage> expected = {
      {.from = 0, .block_size = 64, .mix = {{"easy.txt", 1.0}}},
      {.from = 500, .block_size = std::nullopt, .mix = {{"main", 3.0}, {"data/hard one.bin", 0.5}}},
      {.from = 900, .block_size = 128, .mix = {}},
  };
  EXPECT_EQ(stages_of("data: {stages: [{from: 0, block_size: 64, mix: {easy.txt: 1.0}}, {from: 500, mix: {main: 3, "
                      "data/hard one.bin: 0.5}}, {from: 900, block_size: 128}], text: a}\n"),
            expected);
  EXPECT_EQ(stages_of("data:\n"
                      "  stages:\n"
                      "    - from: 0\n"
                      "      block_size: 64\n"
                      "      mix:\n"
                      "        easy.txt: 1.0\n"
                      "    - from: 500\n"
                      "      mix: {main: 3, \"data/hard one.bin\": 0.5}\n"
                      "    - {from: 900, block_size: 128}\n"
                      "  text: a\n"),
            expected);
  EXPECT_TRUE(stages_of("data: {stages: []}\n").empty());
  EXPECT_EQ(stages_of("data: {stages: [{from: 0, mix: {a: 999, b: 1}}], text: a}\n")[0].mix.size(), 2u);  // just enough
}

TEST(Stages, SurviveTheDump) {
  Config config;
  config.data.text = "a";
  config.data.stages = {{0, 64, {{"a b: {c}", 1.0 / 3}, {"main", 1e-2}}, 16}, {7, {}, {}}};
  Config copy;
  read_yaml(dump(config), "dump", copy);
  EXPECT_EQ(copy.data.stages, config.data.stages);
  const auto changes = difference(Config{}, config);
  const auto found =
      std::find_if(changes.begin(), changes.end(), [](const Change& change) { return change.key == "data.stages"; });
  ASSERT_NE(found, changes.end());
  EXPECT_EQ(found->before, "[]");
  EXPECT_FALSE(found->safe_on_resume);
}

TEST(Stages, AsAFlag) {
  const char* arguments[] = {"gpt-train", "--data.stages", "[{from: 0}, {from: 5, block_size: 8}]"};
  EXPECT_EQ(parse_command_line(3, arguments, "gpt-train", "").config.data.stages,
            (std::vector<Stage>{{0, {}, {}}, {5, 8, {}}}));
  const char* wrong[] = {"gpt-train", "--stages=[{from: 0, size: 8}]"};
  EXPECT_EQ(
      fault_of([&] { parse_command_line(2, wrong, "gpt-train", ""); }),
      "--data.stages:1:12: unknown key 'size' in a stage; its keys are from, block_size, attention_window and mix");
}

TEST(Stages, FaultsNameTheirPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"data:\n  stages: 5\n",
       "c.yaml:2:11: 'data.stages' must be a list like [{from: 0, block_size: 64}, {from: 500}], got '5'"},
      {"data:\n  stages: {from: 0}\n",
       "c.yaml:2:11: 'data.stages' must be a list like [{from: 0, block_size: 64}, {from: 500}], got a map"},
      {"data:\n  stages:\n    - 5\n", "c.yaml:3:7: a stage is a map like {from: 500, block_size: 64}, got '5'"},
      {"data:\n  stages:\n    - {block_size: 8}\n", "c.yaml:3:7: a stage needs 'from', the step at which it begins"},
      {"data:\n  stages:\n    - {from: 0, blok_size: 8}\n",
       "c.yaml:3:17: unknown key 'blok_size' in a stage; did you mean 'block_size'?"},
      {"data:\n  stages:\n    - {from: 0, from: 1}\n", "c.yaml:3:17: 'from' is given twice; keep one"},
      {"data:\n  stages:\n    - {from: x}\n", "c.yaml:3:14: 'from' must be a whole number from 0 to 1e12, got 'x'"},
      {"data:\n  stages:\n    - {from: -1}\n", "c.yaml:3:14: 'from' must be a whole number from 0 to 1e12, got '-1'"},
      {"data:\n  stages:\n    - {from: 0, block_size: 0}\n",
       "c.yaml:3:29: 'block_size' must be auto or a whole number from 1 to 1e6, got '0'"},
      {"data:\n  stages:\n    - {from: 0, mix: {}}\n",
       "c.yaml:3:22: 'mix' must be files and their weights, like {main: 3, hard.txt: 1}, got a map"},
      {"data:\n  stages:\n    - {from: 0, block_size: [1]}\n", "c.yaml:3:29: 'block_size' takes one value, got a list"},
      {"data:\n  stages:\n    - {from: 0, mix: a.txt}\n",
       "c.yaml:3:22: 'mix' must be files and their weights, like {main: 3, hard.txt: 1}, got 'a.txt'"},
      {"data:\n  stages:\n    - {from: 0, mix: {a.txt: -1}}\n",
       "c.yaml:3:30: 'a.txt' must be a number from 1e-6 to 1e6, got '-1'"},
      {"data:\n  stages:\n    - {from: 0, mix: {a: 1, a: 2}}\n", "c.yaml:3:29: 'a' is already in this mix; keep one"},
      {"data:\n  stages:\n    - {from: 0, mix: {a: {b: 2}}}\n",
       "c.yaml:3:26: lists and maps cannot be nested deeper than this"},
      {"data:\n  stages:\n    - {from: 0, mix: {a: 1, b: 0.001}}\n",
       "c.yaml:3:32: 'b' has less than a thousandth of the weights of its stage; raise its weight or leave it out"},
      {"data:\n  stages:\n    - {from: 10}\n", "c.yaml:3:7: the first stage must begin at step 0, got 10"},
      {"data:\n  stages:\n    - {from: 0}\n    - {from: 9}\n    - {from: 9}\n",
       "c.yaml:5:7: stages must be in ascending order: this one begins at step 9, the one before it at 9"},
      {"data:\n  stages:\n    - {from: 0}\n    - {from: 5000}\n",
       "c.yaml:2:3: the last stage begins at step 5000, but the run has only 5000; raise max_steps, or let the stage begin earlier"},
      {"data:\n  stages: [{from: 0}]\ntraining: {epochs: 2}\n",
       "c.yaml:2:3: a run in stages is measured in steps, since its files have no epoch in common; set max_steps, and "
       "intervals in steps"},
      {"data:\n  stages: [{from: 0, block_size: 512}]\n",
       "c.yaml:2:3: the stage from step 0 has sequences of 512 tokens, more than the model's block_size 256; set block_size to 512"},
  };
  for (const auto& [yaml, fault] : cases) EXPECT_EQ(yaml_fault(yaml), fault) << yaml;
}

// data.schedule: grow. Every stage has an update at least.
TEST(StagesTest, GrowingOnesAreAThirdOfTheRunEach) {
  const std::vector<Stage> stages = growing_stages(/*block_size=*/66, /*updates=*/100);
  ASSERT_EQ(stages.size(), 3);
  EXPECT_EQ(stages[0], (Stage{.from = 0, .block_size = 16, .mix = {}}));
  EXPECT_EQ(stages[1], (Stage{.from = 33, .block_size = 33, .mix = {}}));
  EXPECT_EQ(stages[2], (Stage{.from = 66, .block_size = 66, .mix = {}}));
  EXPECT_EQ(growing_stages(1, 3)[2].from, 2);
  EXPECT_TRUE(growing_stages(64, 2).empty());
}

TEST(StagesTest, NarrowTheWindowsOfAModelWhoseOwnHideNothing) {
  Config config;
  config.model.block_size = 1024, config.model.attention_window = 1024;
  EXPECT_EQ(config.model_in_stages().windowed_layers(), 0);
  config.data.stages = {{.from = 0, .block_size = {}, .mix = {}, .attention_window = 128},
                        {.from = 500, .block_size = {}, .mix = {}}};
  EXPECT_EQ(config.model_in_stages().attention_window, 128);
  EXPECT_GT(config.model_in_stages().windowed_layers(), 0);
  config.model.attention_window = 512;
  EXPECT_EQ(config.model_in_stages().attention_window, 512) << "which hides something without stages, too";
}

}  // namespace
}  // namespace gpt::config
