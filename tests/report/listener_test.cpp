#include "gpt/report/listener.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/file.h"
#include "gpt/report/console.h"
#include "gpt/report/metrics_file.h"
#include "gpt/report/sample_files.h"
#include "support/captured_log.h"

namespace gpt::report {
namespace {

// Writes down what it hears.
class Notes : public Listener {
 public:
  explicit Notes(std::vector<std::string>& notes, bool fails = false) : notes_(notes), fails_(fails) {}
  void begin(const RunRecord& run) override { note("begin " + std::to_string(run.total_steps)); }
  void step(const StepRecord& step) override { note("step " + std::to_string(step.step)); }
  void evaluation(const EvaluationRecord& evaluation) override {
    note("evaluation " + std::to_string(evaluation.step));
  }
  void task(const TaskRecord& task) override { note("task " + task.task); }
  void epoch(const EpochRecord& epoch) override { note("epoch " + std::to_string(epoch.epoch)); }
  void timing(const TimingRecord& timing) override { note("timing " + std::to_string(timing.steps)); }
  void efficiency(const EfficiencyRecord& e) override { note("efficiency " + std::to_string(e.step)); }
  void sample(const SampleRecord& sample) override { note("sample " + sample.text); }
  void event(const EventRecord& event) override { note("event " + event.what); }
  void activity(const ActivityRecord& activity) override { note("activity " + activity.what); }
  void stop(const StopRecord& stop) override { note("stop " + stop.why); }
  void end() override { note("end"); }

 private:
  void note(const std::string& text) {
    notes_.push_back(text);
    if (fails_) throw std::runtime_error("the disk is full");
  }
  std::vector<std::string>& notes_;
  bool fails_;
};

void tell_everything(Listener& listener) {
  RunRecord run;
  run.total_steps = 7;
  listener.begin(run);
  StepRecord step;
  step.step = 1;
  listener.step(step);
  listener.evaluation({.step = 2, .bits_per_byte = {}});
  listener.task({.step = 2, .task = "piqa", .metrics = {{"acc", 0.5}}});
  listener.epoch({.epoch = 3});
  listener.timing({.steps = 4});
  listener.sample({.step = 5, .text = "text"});
  listener.event({.step = 6, .what = "saved"});
  listener.activity({.step = 6, .what = "training"});
  listener.stop({.step = 6, .why = "by SIGHUP"});
  listener.efficiency({.step = 7});
  listener.end();
}

TEST(Listeners, AllHearEverythingThoughOneFails) {
  std::vector<std::string> first, second;
  Listeners listeners;
  listeners.add(std::make_unique<Notes>(first, /*fails=*/true), "notes are missing");
  listeners.add(std::make_unique<Notes>(second), "notes are missing");
  test::CapturedLog log;
  tell_everything(listeners);
  const std::string warnings = log.text();
  const std::vector<std::string> expected{"begin 7",           "step 1",         "evaluation 2", "task piqa",
                                          "epoch 3",           "timing 4",       "sample text",  "event saved",
                                          "activity training", "stop by SIGHUP", "efficiency 7", "end"};
  EXPECT_EQ(first, expected) << "it is told again after it failed";
  EXPECT_EQ(second, expected);
  EXPECT_NE(warnings.find("the disk is full; training continues, and notes are missing"), std::string::npos)
      << warnings;
  EXPECT_EQ(warnings.find("the disk is full"), warnings.rfind("the disk is full")) << "said once: " << warnings;
}

TEST(MetricsFile, AppendsALineOfJsonForEachStepAndEvaluation) {
  const ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsFile file(path);
    file.step({.step = 3,
               .loss = NAN,
               .learning_rate = 0.5,
               .grad_norm = 2,
               .step_ms = 4,
               .tokens_per_second = 8,
               .sequences_per_second = 0.5,
               .mfu = 0.25,
               .peak_memory_mb = 16,
               .memory = MemoryUse{.weights = 1e6, .activations = 2.5e6},
               .devices = {{.utilization = 0.5, .temperature_c = NAN, .memory_mb = 8}, {.utilization = 0.25}},
               .wait_ms = {0.5, 2},
               .at = {1e9 + 0.5, 64}});
  }
  MetricsFile file(path);
  file.losses({{.step = 4, .loss = 1.5, .learning_rate = 0.25, .grad_norm = 3, .at = {1e9 + 0.0004, 96}},
               {.step = 5, .loss = std::numeric_limits<double>::infinity(), .grad_norm = NAN, .at = {1e9 + 1, 128}}});
  file.losses({});
  file.evaluation({.step = 6, .loss = 0, .bits_per_byte = 1.5, .standard_error = 0.25, .at = {1e9 + 2.125, 160}});
  file.task({.step = 6,
             .task = "lambada",
             .metrics = {{"acc", 0.25, 0.125}, {"perplexity", std::numeric_limits<double>::infinity()}},
             .examples = 4,
             .at = {1e9 + 2.5, 160}});
  file.efficiency({.step = 6,
                   .step_ms = 4,
                   .least_ms = 2,
                   .peak_flops = 1e12,
                   .copy_bytes_per_second = 1e10,
                   .at = {1e9 + 3, 160}});
  EXPECT_EQ(
      read_file(path, ExitCode::data),
      R"({"step":3,"loss":null,"lr":0.5,"grad_norm":2.0,"step_ms":4.0,"tokens_per_second":8.0,"sequences_per_second":0.5,"peak_memory_mb":16.0,"time":1000000000.5,"tokens":64,"mfu":0.25,"wait_ms":[0.5,2.0],)"
      R"("memory_mb":{"weights":1.0,"gradients":0.0,"optimizer":0.0,"data":0.0,"activations":2.5,"workspace":0.0},"device":{"utilization":0.5,"temperature_c":null,"memory_mb":8.0},"devices":[{"utilization":0.5,"temperature_c":null,"memory_mb":8.0},{"utilization":0.25}]})"
      "\n"
      R"({"step":4,"loss":1.5,"lr":0.25,"grad_norm":3.0,"time":1000000000.0,"tokens":96})"
      "\n"
      R"({"step":5,"loss":null,"lr":0.0,"grad_norm":null,"time":1000000001.0,"tokens":128})"
      "\n"
      R"({"step":6,"val_loss":0.0,"val_perplexity":1.0,"val_loss_error":0.25,"val_bits_per_byte":1.5,"time":1000000002.125,"tokens":160})"
      "\n"
      R"({"step":6,"task":"lambada","metrics":{"acc":0.25,"acc_error":0.125,"perplexity":null},"examples":4,"time":1000000002.5,"tokens":160})"
      "\n"
      R"({"step":6,"efficiency":0.5,"least_step_ms":2.0,"peak_flops":1000000000000.0,"copy_bytes_per_second":10000000000.0,"time":1000000003.0,"tokens":160})"
      "\n");
}

TEST(MetricsFile, HasTheNormsOfEachLayerInSixDigits) {
  const ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsFile(path).step(
      {.step = 3,
       .mfu = {},
       .norms = LayerNorms{.gradient = {1.0 / 3, NAN, 2}, .weight = {4, 5, 6}, .update = {0, 1e-7, 8}}});
  EXPECT_NE(read_file(path, ExitCode::data)
                .find(R"(,"norms":{"gradient":[0.333333,null,2.0],"weight":[4.0,5.0,6.0],"update":[0.0,1e-07,8.0]}})"),
            std::string::npos)
      << read_file(path, ExitCode::data);
}

TEST(LayerNorms, BlocksAreNamedAsInCheckpoints) {
  const LayerNorms norms{.gradient = {1, 2, 3, 4}, .weight = {}, .update = {}};
  std::vector<std::string> names;
  for (int64_t layer = 0; layer < norms.layers(); ++layer) names.push_back(norms.name_of(layer));
  EXPECT_EQ(names, (std::vector<std::string>{"embeddings", "h.0", "h.1", "final"}));
}

StepRecord reading(int64_t step, double others) {
  return {.step = step,
          .mfu = {},
          .devices = {{.cores = 2, .threads = 2, .cores_busy = 2 - others, .cores_others = others}},
          .at = {.time = 1e9 + 5.0 * static_cast<double>(step)}};
}

TEST(Console, TellsWhatLastsAndTellsItOnce) {
  Console console;
  const auto told = [&](int64_t from, int64_t to, double others) {
    test::CapturedLog log;
    for (int64_t step = from; step <= to; ++step) console.step(reading(step, others));
    const std::string text = log.text();
    const size_t first = text.find("Other programs take 1.3 of 2 cores.");
    return first == std::string::npos ? 0 : text.find("Other programs", first + 1) == std::string::npos ? 1 : 2;
  };
  EXPECT_EQ(told(1, 2, 1.3), 0) << "of five seconds";
  EXPECT_EQ(told(3, 3, 0), 0);
  EXPECT_EQ(told(4, 5, 1.3), 0);
  EXPECT_EQ(told(6, 9, 1.3), 1);
  EXPECT_EQ(told(10, 12, 0), 0);
  EXPECT_EQ(told(13, 20, 1.3), 0) << "it has hardly been away";
  EXPECT_EQ(told(21, 45, 0), 0);
  EXPECT_EQ(told(46, 50, 1.3), 1);
}

TEST(TaskRecord, TheMainMetricIsTheOneThatTasksAreKnownBy) {
  const auto main_of = [](const std::vector<std::string>& names) {
    TaskRecord record;
    for (const std::string& name : names) record.metrics.push_back({name});
    return record.main_metric().name;
  };
  EXPECT_EQ(main_of({"acc", "acc_norm", "acc_bytes"}), "acc_norm");
  EXPECT_EQ(main_of({"perplexity", "acc"}), "acc");
  EXPECT_EQ(main_of({"loss", "perplexity", "bits_per_byte"}), "bits_per_byte");
  EXPECT_EQ(main_of({"f1", "exact_match"}), "f1");
}

TEST(LossText, HasFourDigitsAndSoHasTheStandardError) {
  EXPECT_EQ(loss_text(1.54704, std::nullopt), "1.5470");
  EXPECT_EQ(loss_text(4.35, 0.02177), "4.3500 ± 0.0218");
}

TEST(MetricsFile, ThatCannotBeOpenedAtFirstIsTriedAgain) {
  const ScratchFolder folder;
  const std::string path =
      folder.file("run/metrics.jsonl/in_the_way", "").substr(0, (folder / "run/metrics.jsonl").size());
  Listeners listeners;
  listeners.add(std::make_unique<MetricsFile>(path), "lines are missing");
  test::CapturedLog log;
  listeners.begin({});
  EXPECT_NE(log.text().find("; training continues, and lines are missing\n"), std::string::npos);
  std::filesystem::remove_all(path);
  listeners.evaluation({.step = 4, .loss = 1, .bits_per_byte = {}});
  EXPECT_TRUE(read_file(path, ExitCode::data).starts_with(R"({"step":4,)"));
}

TEST(SampleFiles, MakesTheFolderWithTheFirstSample) {
  const ScratchFolder folder;
  SampleFiles files(folder / "samples");
  EXPECT_TRUE(names_in(folder.path()).empty());
  files.sample({.step = 8, .text = "Once"});
  files.sample({.step = 100, .text = "upon"});
  EXPECT_EQ(names_in(folder / "samples"), (std::vector<std::string>{"step_00000008.txt", "step_00000100.txt"}));
  EXPECT_EQ(read_file(folder / "samples/step_00000100.txt", ExitCode::data), "upon\n");
}

TEST(TimingTable, PutsTheStartIntoOneRowAndTheRestIntoFive) {
  TimingTable table;
  table.timing({.steps = 1, .tokens = 10, .seconds = 2, .is_warm_up = true});
  table.timing({.steps = 9, .tokens = 90, .seconds = 2, .is_warm_up = true});
  table.timing({});  // nothing was timed
  for (int i = 0; i < 10; ++i) table.timing({.steps = 5, .tokens = 50, .seconds = 1});
  EXPECT_EQ(table.text(),
            "  steps            time/step  tokens/s\n"
            "  1-10 (start)        400 ms        25\n"
            "  11-20               200 ms        50\n"
            "  21-30               200 ms        50\n"
            "  31-40               200 ms        50\n"
            "  41-50               200 ms        50\n"
            "  51-60               200 ms        50\n"
            "  after the start     200 ms        50");
  table.efficiency({.step = 60, .step_ms = 200, .least_ms = 50, .peak_flops = 7.82e14, .copy_bytes_per_second = 3e12});
  EXPECT_TRUE(table.text().ends_with(
      "\n  efficiency 25 %: a large product (782.00 TFLOP/s) and a large copy (3.00 TB/s) on this machine would allow 50 ms a step"))
      << table.text();
  table.efficiency({.step = 60, .step_ms = 200, .least_ms = 204, .peak_flops = 2e11, .copy_bytes_per_second = 3e10});
  EXPECT_TRUE(table.text().ends_with(" or that products had 8 bits")) << table.text();
}

TEST(TimingTable, CountsTheStepsOfTheRunThatWasResumed) {
  RunRecord run;
  run.first_step = 700;
  TimingTable table;
  table.begin(run);
  table.timing({.steps = 10, .tokens = 100, .seconds = 2, .is_warm_up = true});
  EXPECT_NE(table.text().find("\n  701-710 (start) "), std::string::npos) << table.text();
}

}  // namespace
}  // namespace gpt::report
