#include "gpt/diagnose/runs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/lock.h"
#include "gpt/diagnose/run_groups.h"
#include "support/expect_error.h"

namespace gpt {
namespace {

RunSummary summary(const std::string& folder, const std::string& tokenizer, double learning_rate) {
  RunSummary run{.folder = folder, .history = {}, .config = Config()};
  run.config->data.text = "texts";
  run.config->data.tokenizer = tokenizer;
  run.config->training.schedule.learning_rate = learning_rate;
  run.config->output_dir = folder;
  for (const int64_t step : {100, 200}) {
    run.history.add(StepRecord{.step = step, .loss = 400.0 / step, .step_ms = 10, .tokens_per_second = 100, .mfu = {}});
    run.history.add(EvaluationRecord{.step = step, .loss = 500.0 / step, .bits_per_byte = 150.0 / step});
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

// With a loss of its own, and another seed or rate.
RunSummary run_of(const std::string& folder, double loss, int64_t seed, double rate,
                  const std::string& text = "texts") {
  RunSummary run{.folder = folder, .history = {}, .config = Config()};
  run.config->data.text = text;
  run.config->seed = seed;
  run.config->training.schedule.learning_rate = rate;
  run.history.add(StepRecord{.step = 100, .loss = loss, .mfu = {}});
  run.history.add(EvaluationRecord{.step = 100, .loss = loss, .bits_per_byte = loss / 3});
  return run;
}

std::string verdict_of(std::vector<RunSummary> runs) { return verdict_on(grouped(std::move(runs)).at(0)); }

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

TEST(Runs, AVerdictNeedsTheSpreadBetweenSeeds) {
  EXPECT_EQ(verdict_of({run_of("a", 2.0, 1, 1e-3)}), "");
  EXPECT_EQ(
      verdict_of({run_of("a", 2.0, 1, 1e-3), run_of("b", 1.5, 1, 5e-4)}),
      "b is 0.5000 better than a (1.5000 and 2.0000 validation loss). Whether that is more than chance needs runs with "
      "other seeds: --seed.");
  EXPECT_EQ(verdict_of({run_of("a", 1.0, 1, 1e-3), run_of("b", 2.0, 2, 1e-3), run_of("c", 3.0, 3, 1e-3)}),
            "The runs differ in their seeds alone: validation loss 2.0000, with a standard deviation of 1.0000.");
  std::vector<RunSummary> four{run_of("a", 2.00, 1, 1e-3), run_of("b", 2.02, 2, 1e-3), run_of("c", 1.50, 1, 5e-4),
                               run_of("d", 1.52, 2, 5e-4)};
  // The spread is 0.02 / sqrt(2) with two degrees of freedom, and so the interval 4.303 times that.
  EXPECT_EQ(
      verdict_of(four),
      "c (2 seeds) is better than a (2 seeds): 1.5100 and 2.0100 validation loss; the difference is 0.5000 ± 0.0609, by "
      "what seeds change.");
  four[0] = run_of("a", 1.55, 1, 1e-3), four[1] = run_of("b", 1.53, 2, 1e-3);
  EXPECT_TRUE(verdict_of(four).starts_with("c (2 seeds) cannot be told from b (2 seeds): ")) << verdict_of(four);
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
}  // namespace gpt
