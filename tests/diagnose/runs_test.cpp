#include "gpt/diagnose/runs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "board/compared_runs.h"
#include "core/scratch_folder.h"
#include "gpt/core/lock.h"
#include "support/expect_error.h"

namespace gpt::diagnose {
namespace {

using board::RunSummary;
using test::run_of;

RunSummary summary(const std::string& folder, const std::string& tokenizer, double learning_rate) {
  RunSummary run{.folder = folder, .history = {}, .config = Config()};
  run.config->data.text = "texts";
  run.config->data.tokenizer = tokenizer;
  run.config->training.schedule.learning_rate = learning_rate;
  run.config->output_dir = folder;
  for (const int64_t step : {100, 200}) {
    run.history.add(
        report::StepRecord{.step = step, .loss = 400.0 / step, .step_ms = 10, .tokens_per_second = 100, .mfu = {}});
    run.history.add(report::EvaluationRecord{.step = step, .loss = 500.0 / step, .bits_per_byte = 150.0 / step});
  }
  return run;
}

TEST(Runs, AreComparedInBitsPerByteWhereTheirTokensDiffer) {
  const std::vector<RunSummary> same{summary("models/a", "char", 1e-3), summary("models/b", "char", 1e-3)};
  EXPECT_TRUE(draw_runs(same, 80, false)
                  .starts_with("validation loss by step\n   loss * models/a 2.5000   o models/b 2.5000\n"));
  std::vector<RunSummary> other{summary("models/a", "char", 1e-3), summary("models/b", "bpe:512", 1e-3)};
  const std::string bits = draw_runs(other, 80, false);
  EXPECT_TRUE(
      bits.starts_with("validation bits per byte by step, because the tokens of the runs differ\n"
                       "   bits * models/a 0.7500   o models/b 0.7500\n"))
      << bits;
  other[1].history.bits_per_byte = {};
  EXPECT_TRUE(
      draw_runs(other, 80, false)
          .starts_with(
              "validation loss by step; the tokens of the runs differ, so that their losses cannot be compared\n"));
}

TEST(Runs, TheBestComesFirstAndThoseOfOtherTextsAreNotCompared) {
  const std::vector<RunSummary> runs{run_of("a", 2.0, 1, 1e-3), run_of("other", 1.0, 1, 1e-3, "another text"),
                                     run_of("b", 1.5, 1, 5e-4)};
  const auto json = nlohmann::json::parse(runs_json(runs));
  EXPECT_EQ(json["runs"][0]["folder"], "b");
  EXPECT_EQ(json["runs"][1]["folder"], "a");
  EXPECT_EQ(json["runs"][2]["text"], 1);
  EXPECT_EQ(json["verdicts"].size(), 1u);
  const std::string text = draw_runs(runs, 100, false);
  EXPECT_TRUE(
      text.starts_with("The runs read different texts, and only those that read the same are compared.\n\n"
                       "validation loss by step\n   loss * b 1.5000   o a 2.0000\n"))
      << text;
}

TEST(Runs, AFolderOfRunsIsItsRunsAndEachSaysHowItWasLeft) {
  const ScratchFolder folder;
  const auto left = [&](const std::string& name, const std::string& state) {
    folder.file(name + "/metrics.jsonl", R"({"step":1,"loss":2,"lr":1,"grad_norm":1})");
    folder.file(name + "/report.html", R"(<script type="application/json" id="run">)" + state + "</script>");
  };
  left("a", R"({"has_ended":true,"stopped":""})");
  left("b", R"({"has_ended":false,"stopped":"by SIGINT"})");
  left("c", R"({"has_ended":false,"stopped":""})");
  left("d", R"({"has_ended":false,"stopped":""})");
  folder.file("no run/notes.txt", "");
  const FolderLock lock(folder / "d", ExitCode::checkpoint, "output_dir");
  const std::vector<RunSummary> runs = read_runs({folder.path()});
  std::vector<std::string> states;
  for (const RunSummary& run : runs) states.push_back(run.state);
  EXPECT_EQ(states, (std::vector<std::string>{"done", "stopped", "cut off", "trains"}));
  EXPECT_ERROR(read_runs({folder / "no run"}), ExitCode::config, "no metrics.jsonl, and no folders with one");
}

TEST(Runs, TheSettingsInWhichTheyDifferAreListed) {
  std::vector<RunSummary> runs{summary("models/a", "char", 1e-3), summary("models/b", "char", 5e-4),
                               summary("models/c", "bpe:512", 1e-3)};
  runs.push_back(summary("models/old", "char", 1e-3));
  runs.back().config.reset();
  const std::string text = draw_runs(runs, 80, false);
  EXPECT_TRUE(
      text.ends_with("\n\nThe runs differ in these settings, whose values are in the same order:\n"
                     "training.learning_rate  0.001  0.0005      0.001  -\n"
                     "data.tokenizer           char    char  \"bpe:512\"  -\n"))
      << text;
  const auto json = nlohmann::json::parse(runs_json(runs))["runs"];
  EXPECT_EQ(json[1]["differing_settings"],
            nlohmann::json::parse(R"({"training.learning_rate": "0.0005", "data.tokenizer": "char"})"));
  EXPECT_EQ(draw_runs({runs[0], runs[0]}, 80, false).find("The runs differ"), std::string::npos);
}

}  // namespace
}  // namespace gpt::diagnose
