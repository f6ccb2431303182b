#include "gpt/board/comparison.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/board/run_groups.h"

namespace gpt::board {
namespace {

using nlohmann::json;

class Compared : public testing::Test {
 protected:
  ComparedRun run(const std::string& name, double loss, const std::string& rate, const std::string& text = "texts") {
    (void)folder_.file(name + "/effective_config.yaml", "data:\n  text: " + text + "\ntraining:\n  learning_rate: " +
                                                            rate + "\noutput_dir: " + name + "\n");
    return {name, folder_ / name, report::EvaluationRecord{.step = 9, .loss = loss, .bits_per_byte = loss / 3}};
  }
  json groups(const std::vector<ComparedRun>& runs) { return json::parse(comparison_.text(runs))["groups"]; }

  const ScratchFolder folder_;
  Comparison comparison_;
};

TEST_F(Compared, TheBestComesFirstWithTheSettingsThatDiffer) {
  const json all = groups({run("a", 2, "1e-3"), run("other", 1, "1e-3", "alone"), run("b", 1.5, "5e-4")});
  ASSERT_EQ(all.size(), 1u) << "a run that is alone with its text is not compared";
  EXPECT_EQ(all[0]["settings"], json({"training.learning_rate"}));
  EXPECT_EQ(all[0]["runs"],
            json::parse(
                R"([{"name":"b","best":1.5,"settings":["0.0005"]},{"name":"a","best":2,"settings":["0.001"]}])"));
  EXPECT_EQ(all[0]["what"], "validation loss");
  EXPECT_EQ(
      all[0]["verdict"],
      "b is 0.5000 better than a (1.5000 and 2.0000 validation loss). Whether that is more than chance needs runs "
      "with other seeds: --seed.");
}

TEST_F(Compared, AConfigurationThatChangesIsReadAgain) {
  const ComparedRun a = run("a", 2, "1e-3"), b = run("b", 1.5, "1e-3");
  EXPECT_EQ(groups({a, b})[0]["settings"], json::array());
  (void)run("b", 1.5, "0.00025");
  EXPECT_EQ(groups({a, b})[0]["runs"][0]["settings"], json({"0.00025"}));
}

TEST_F(Compared, RunsWithoutAConfigurationOrAValidationAreNoReasonToFail) {
  EXPECT_EQ(groups({}), json::array());
  EXPECT_EQ(groups({{"x", folder_ / "x", {}}, {"y", folder_ / "y", {}}}), json::array());
  ComparedRun a = run("a", 2, "1e-3");
  a.best.reset();
  const json all = groups({a, run("b", 1.5, "1e-3")});
  EXPECT_EQ(all[0]["runs"][1], json::parse(R"({"name":"a","best":null,"settings":[]})"));
  EXPECT_EQ(all[0]["verdict"], "");
}

TEST_F(Compared, OfManyRunsTheBestAreListed) {
  std::vector<ComparedRun> runs;
  for (int i = 0; i < 40; ++i) runs.push_back(run("run" + std::to_string(i), 3 - 0.01 * i, "1e-3"));
  const json group = groups(runs)[0];
  EXPECT_EQ(group["count"], 40);
  EXPECT_EQ(group["runs"].size(), Comparison::kMostRuns);
  EXPECT_EQ(group["runs"][0]["name"], "run39");
}

}  // namespace
}  // namespace gpt::board
