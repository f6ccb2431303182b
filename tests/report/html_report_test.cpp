#include "gpt/report/html_report.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/failing_calls.h"
#include "core/scratch_folder.h"
#include "gpt/core/file.h"
#include "support/expect_error.h"

namespace gpt::report {
namespace {

using nlohmann::json;

constexpr char kTag[] = "<script type=\"application/json\" id=\"run\">";

RunRecord run_from(int64_t first_step) {
  return {.first_step = first_step,
          .total_steps = 1000,
          .total_epochs = 3,
          .parameters = 10'745'088,
          .folder = "models/my run/",
          .configuration = "model:\n  n_layer: 6\n",
          .machine = "CPU with 2 cores",
          .epochs = 3.05};
}

StepRecord step_at(int64_t step, double loss = 2.5) {
  return {.step = step,
          .loss = loss,
          .learning_rate = 3e-4,
          .grad_norm = 0.5,
          .step_ms = 20,
          .tokens_per_second = 1e5,
          .mfu = {},
          .peak_memory_mb = 900};
}

class HtmlReportTest : public testing::Test {
 protected:
  HtmlReport report() const { return {path_, folder_ / "metrics.jsonl"}; }
  std::string text() const { return read_file(path_, ExitCode::disk); }

  // What the page shows, from the place where its script finds it.
  json shown() const {
    const std::string page = text();
    const size_t begin = page.find(kTag) + sizeof kTag - 1;
    return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  }

  // What the next start of a run finds in the folder must not keep it from reporting.
  void expect_replaced(const std::string& former) const {
    folder_.file("report.html", former);
    HtmlReport resumed = report();
    resumed.begin(run_from(500));
    const json page = shown();
    EXPECT_EQ(page["step"], 500);
    EXPECT_EQ(page["samples"].size(), 0) << page["samples"];
    EXPECT_EQ(page["events"].size(), 1) << page["events"];
  }

  ScratchFolder folder_;
  std::string path_ = folder_ / "report.html";
};

TEST_F(HtmlReportTest, ShowsTheRun) {
  HtmlReport report = this->report();
  report.begin(run_from(0));
  EXPECT_EQ(shown()["step"], 0);
  report.step(step_at(10, 4.25));
  report.step(step_at(20, 3.125));
  report.evaluation({.step = 20, .loss = 3.5, .bits_per_byte = 1.25, .is_best = true, .seconds = 1});
  report.task({.step = 20, .task = "piqa", .metrics = {{"acc", 0.5, 0.25}, {"acc_norm", 0.75}}});
  report.sample({20, "Once upon a time"});
  report.event({20, "saved ckpt.pt"});
  const json page = shown();
  EXPECT_EQ(page["name"], "my run");
  EXPECT_EQ(page["configuration"], "model:\n  n_layer: 6\n");
  EXPECT_EQ(page["machine"], "CPU with 2 cores");
  EXPECT_EQ(page["step"], 20);
  EXPECT_EQ(page["total_steps"], 1000);
  EXPECT_EQ(page["epochs"], 3.05);
  EXPECT_EQ(page["parameters"], 10'745'088);
  EXPECT_EQ(page["has_ended"], false);
  EXPECT_EQ(page["curves"]["loss"], json::parse(R"({"steps": [10, 20], "values": [4.25, 3.125]})"));
  EXPECT_EQ(page["curves"]["learning_rate"]["values"][0], 3e-4);
  EXPECT_EQ(page["curves"]["validation_loss"], json::parse(R"({"steps": [20], "values": [3.5]})"));
  EXPECT_EQ(page["curves"]["bits_per_byte"]["values"], json({1.25}));
  EXPECT_EQ(page["curves"]["mfu"]["steps"].size(), 0);
  EXPECT_EQ(page["tasks"], json({"piqa acc_norm"}));
  EXPECT_EQ(page["curves"]["piqa acc_norm"], json::parse(R"({"steps": [20], "values": [0.75]})"));
  EXPECT_EQ(page["curves"]["tokens"], json::parse(R"({"steps": [10, 20], "values": [2000, 22000]})"));
  EXPECT_EQ(page["curves"]["seconds"]["values"], json({0.02, 0.22}));
  EXPECT_EQ(page["latest"]["loss"], 3.125);
  EXPECT_EQ(page["best"]["step"], 20);
  EXPECT_EQ(page["samples"], json::parse(R"([{"step": 20, "text": "Once upon a time"}])"));
  EXPECT_EQ(page["events"][0]["what"], "saved ckpt.pt");
  EXPECT_FALSE(page.contains("efficiency")) << "it is measured at the end, if at all";
  report.efficiency({.step = 1000, .step_ms = 4, .least_ms = 2});
  report.end();
  EXPECT_EQ(shown()["efficiency"], 0.5);
  EXPECT_EQ(shown()["has_ended"], true);
  EXPECT_EQ(shown()["step"], 1000);
}

TEST_F(HtmlReportTest, ARunThatEndsEarlyIsAtTheStepThatItHasReached) {
  HtmlReport report = this->report();
  report.begin(run_from(0));
  report.step(step_at(33));
  report.event({.step = 34, .what = "ended: no new best in 5 evaluations (training.patience)"});
  report.end();
  EXPECT_EQ(shown()["step"], 34);
}

TEST_F(HtmlReportTest, ARunThatStopsIsNotSaidToTrainUntilItResumes) {
  HtmlReport first = report();
  first.begin(run_from(0));
  first.step(step_at(33));
  first.stop({33, "by SIGHUP"});
  EXPECT_EQ(shown()["stopped"], "by SIGHUP");
  EXPECT_EQ(shown()["has_ended"], false);
  EXPECT_EQ(shown()["step"], 33);
  EXPECT_EQ(shown()["events"].back()["what"], "stopped by SIGHUP");
  HtmlReport second = report();
  second.begin(run_from(33));
  EXPECT_EQ(shown()["stopped"], "");
  EXPECT_EQ(shown()["events"].back()["what"], "resumed");
  second.stop({33, "by SIGINT"});
  RunRecord changed = run_from(33);
  changed.changes = {"threads: 2 -> 1", "training.max_steps: 16 -> 24"};
  HtmlReport third = report();
  third.begin(changed);
  EXPECT_EQ(shown()["events"].back()["what"], "resumed with threads: 2 -> 1, training.max_steps: 16 -> 24");
}

TEST_F(HtmlReportTest, WhatIsRoutineIsThereOnceWithItsNumber) {
  const EventRecord best{.what = "saved ckpt_best.pt", .is_routine = true};
  {
    HtmlReport first = report();
    first.begin(run_from(0));
    for (EventRecord event = best; event.step < 300; event.step += 100) first.event(event);
    first.event({150, "skipped an update"});
    first.stop({300, "by SIGINT"});
  }
  HtmlReport resumed = report();
  resumed.begin(run_from(300));
  for (const int64_t step : {350, 400}) resumed.event({.step = step, .what = best.what, .is_routine = true});
  const json events = shown()["events"];
  ASSERT_EQ(events.size(), 4) << events;
  EXPECT_EQ(events[0]["what"], "skipped an update");
  EXPECT_EQ(events[2]["what"], "resumed");
  EXPECT_EQ(events[3]["what"], best.what);
  EXPECT_EQ(events[3]["step"], 400);
  EXPECT_EQ(events[3]["times"], 5);
}

TEST_F(HtmlReportTest, EveryStepHasItsRateAndItsNorm) {
  HtmlReport report = this->report();
  report.begin(run_from(0));
  report.losses({{.step = 1, .loss = 3, .learning_rate = 0.5, .grad_norm = 2}});
  report.step(step_at(2));
  report.end();
  EXPECT_EQ(shown()["curves"]["learning_rate"]["values"], json({0.5, 3e-4}));
  EXPECT_EQ(shown()["curves"]["grad_norm"]["values"], json({2, 0.5}));
}

TEST_F(HtmlReportTest, TellsWhetherARunWasLeftOpen) {
  EXPECT_FALSE(reported_state(path_)) << "there is none";
  HtmlReport report = this->report();
  report.begin(run_from(0));
  EXPECT_TRUE(reported_state(path_)->is_open());
  report.stop({0, "by SIGTERM"});
  EXPECT_EQ(reported_state(path_)->stopped, "by SIGTERM");
  EXPECT_FALSE(reported_state(path_)->is_open());
  report.end();
  EXPECT_TRUE(reported_state(path_)->has_ended);
  folder_.file("report.html", "<html>");
  EXPECT_FALSE(reported_state(path_));
}

TEST_F(HtmlReportTest, IsOneFileThatLoadsNothing) {
  HtmlReport report = this->report();
  report.begin(run_from(0));
  const std::string page = text();
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  EXPECT_NE(page.find("Dygraph"), std::string::npos);
  for (const char* loads : {"<script src", "<link rel=\"stylesheet", "@import", "url(", "sourceMappingURL", "@RUN@",
                            "@STYLE@", "@SCRIPT@", "@DYGRAPHS"}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  }
  EXPECT_EQ(names_in(folder_.path()), std::vector<std::string>{"report.html"});
}

// Whatever the run says, the element that holds it ends where the page ends it, and nothing in it is a script of its own.
TEST_F(HtmlReportTest, HostileTextsStayTexts) {
  const std::string hostile =
      std::string("</script><script>alert(1)</script><!--<script>]]>\"'\\\xff\xc3 \xe2\x80\xa8\xe2\x80\xa9&amp;") +
      '\0' + "\x1b[31m";
  HtmlReport report = this->report();
  RunRecord run = run_from(0);
  run.folder = "models/<script>alert(1)</script>";
  run.configuration = run.machine = hostile;
  report.begin(run);
  report.sample({1, hostile});
  report.event({1, hostile});
  const std::string page = text();
  const size_t begin = page.find(kTag) + sizeof kTag - 1;
  const std::string data = page.substr(begin, page.find("</script>", begin) - begin);
  EXPECT_EQ(data.back(), '}');
  for (const char* unsafe : {"<", "\u2028", "\u2029", "\xff"})
    EXPECT_EQ(data.find(unsafe), std::string::npos) << unsafe;
  for (const char c : data) EXPECT_GE(static_cast<unsigned char>(c), ' ');
  std::string readable = hostile;
  readable.replace(readable.find("\xff\xc3"), 2, "\xEF\xBF\xBD\xEF\xBF\xBD");  // U+FFFD in place of each stray byte
  const json parsed = json::parse(data);
  EXPECT_EQ(parsed["samples"][0]["text"], readable);
  EXPECT_EQ(parsed["events"][0]["what"], readable);
  EXPECT_EQ(parsed["configuration"], readable);
  EXPECT_EQ(parsed["machine"], readable);
}

TEST_F(HtmlReportTest, ALongRunStaysSmall) {
  HtmlReport report = this->report();
  RunRecord run = run_from(0);
  run.total_steps = 100'000;
  report.begin(run);
  for (int64_t step = 1; step <= 100'000; ++step) report.step(step_at(step, std::sin(static_cast<double>(step))));
  for (int64_t step = 1; step <= 120; ++step) {
    std::string text = std::to_string(step) + " ";
    while (text.size() < 20'000) text += "è";
    report.sample({step, text});
    if (step > 110) report.event({step, text});
  }
  report.end();
  const json page = shown();
  for (const auto& [name, curve] : page["curves"].items()) {
    EXPECT_LE(curve["steps"].size(), 2'000) << name;
    EXPECT_EQ(curve["steps"].size(), curve["values"].size()) << name;
  }
  EXPECT_GT(page["curves"]["loss"]["steps"].size(), 1'000);
  EXPECT_EQ(page["samples"].size(), RunHistory::kMaxSamples);
  EXPECT_EQ(page["samples"].back()["step"], 120);
  const std::string sample = page["samples"].back()["text"];
  EXPECT_LE(sample.size(), RunHistory::kMaxSampleBytes + 4);
  EXPECT_TRUE(sample.ends_with("è…")) << sample.substr(sample.size() - 10);
  EXPECT_LT(text().size(), 8 << 20);
}

TEST_F(HtmlReportTest, WhatIsNotFiniteIsAGap) {
  HtmlReport report = this->report();
  report.begin(run_from(0));
  report.step(step_at(1, std::numeric_limits<double>::quiet_NaN()));
  report.step(step_at(2, std::numeric_limits<double>::infinity()));
  report.step(step_at(3, 1.5));
  report.evaluation({.step = 3,
                     .loss = std::numeric_limits<double>::quiet_NaN(),
                     .bits_per_byte = {},
                     .is_best = false,
                     .seconds = 1});
  const json page = shown();
  EXPECT_EQ(page["curves"]["loss"]["values"], json::parse("[null, null, 1.5]"));
  EXPECT_FALSE(page.contains("best"));
}

TEST_F(HtmlReportTest, AResumedRunShowsItsEarlierStarts) {
  {
    HtmlReport first = report();
    first.begin(run_from(0));
    for (const int64_t step : {100, 200, 300}) {
      first.sample({step, "sample at " + std::to_string(step)});
      first.event({step, "event at " + std::to_string(step)});
    }
  }
  folder_.file(
      "metrics.jsonl",
      "{\"step\":100,\"loss\":4,\"lr\":1e-3,\"grad_norm\":null,\"step_ms\":5,\"tokens_per_second\":7,\"peak_memory_mb\":8,\"mfu\":0.5}\n"
      "{\"step\":100,\"val_loss\":4.5,\"val_perplexity\":90,\"val_bits_per_byte\":2}\n"
      "{\"step\":100,\"task\":\"wikitext\",\"metrics\":{\"loss\":9,\"bits_per_byte\":2.5,\"bits_per_byte_error\":1}}\n"
      "{\"step\":100,\"task\":\"piqa\",\"metrics\":[1]}\n{\"step\":100,\"task\":\"arc\"}\n"
      "not JSON\n{\"step\":\"150\",\"loss\":1}\n{\"step\":-1,\"loss\":1}\n{\"step\":1e99,\"loss\":1}\n[1]\n"
      "{\"step\":200,\"loss\":3}\n{\"step\":300,\"loss\":2}\n{\"step\":20");
  HtmlReport resumed = report();
  resumed.begin(run_from(200));
  resumed.step(step_at(210, 2.75));
  resumed.end();
  const json page = shown();
  EXPECT_EQ(page["curves"]["loss"], json::parse(R"({"steps": [100, 200, 210], "values": [4, 3, 2.75]})"));
  EXPECT_EQ(page["curves"]["grad_norm"]["values"], json::parse("[null, 0.5]"));  // step 200 was not logged
  EXPECT_EQ(page["curves"]["mfu"]["values"], json({0.5}));
  EXPECT_EQ(page["curves"]["validation_loss"]["values"], json({4.5}));
  EXPECT_EQ(page["best"]["loss"], 4.5);
  EXPECT_EQ(page["tasks"], json({"wikitext bits_per_byte"}));
  EXPECT_EQ(page["curves"]["wikitext bits_per_byte"]["values"], json({2.5}));
  ASSERT_EQ(page["samples"].size(), 2);  // those of steps that will be done again are gone
  EXPECT_EQ(page["samples"][1]["text"], "sample at 200");
  ASSERT_EQ(page["events"].size(), 3);
  EXPECT_EQ(page["events"][0]["what"], "event at 100");
  EXPECT_GT(page["events"][0]["time"], 1'700'000'000);
  EXPECT_EQ(page["events"][2]["what"], "resumed; the start before was killed, or its machine went down");
}

TEST_F(HtmlReportTest, ARunThatBeginsAnewForgetsTheFormerOne) {
  {
    HtmlReport first = report();
    first.begin(run_from(0));
    first.sample({0, "of the former run"});
  }
  folder_.file("metrics.jsonl", "{\"step\":0,\"loss\":4}\n");
  HtmlReport again = report();
  again.begin(run_from(0));
  EXPECT_EQ(shown()["samples"].size(), 0);
  EXPECT_EQ(shown()["curves"]["loss"]["steps"].size(), 0);
}

TEST_F(HtmlReportTest, AFormerReportThatMakesNoSenseIsReplaced) {
  const std::string tag = kTag;
  expect_replaced("");
  expect_replaced("<html>");
  expect_replaced(tag);
  expect_replaced(tag + "{\"samples\":[{\"step\":1,\"text\":\"cut o");
  expect_replaced(tag + "null</script>");
  expect_replaced(tag + "[[[[1]]]]</script>");
  expect_replaced(tag + R"({"samples":7,"events":{"step":1}}</script>)");
  expect_replaced(
      tag +
      R"({"samples":[null,1,[],{},{"step":1},{"step":"1","text":"a"},{"step":1.5,"text":"a"},{"step":-1,"text":"a"}]}</script>)");
  expect_replaced(
      tag +
      R"({"samples":[{"step":18446744073709551615,"text":"a"},{"step":1,"text":{}}],"events":[{"step":1,"what":null}]}</script>)");
  expect_replaced(tag + "{\"samples\":[{\"step\":1,\"text\":\"\xff\"}]}</script>");
  expect_replaced(tag + std::string(200'000, '[') + "</script>");
  expect_replaced(tag + "{\"samples\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}</script>");
}

TEST_F(HtmlReportTest, AFormerReportIsCutAtEveryByte) {
  {
    HtmlReport first = report();
    first.begin(run_from(0));
    first.sample({1, "a sample"});
  }
  const std::string page = text();
  const size_t begin = page.find(kTag), end = page.find("</script>", begin);
  for (size_t size = begin; size < end; size += 7) expect_replaced(page.substr(0, size));
}

TEST_F(HtmlReportTest, AnEventWithoutATimeKeepsItsText) {
  folder_.file("report.html", std::string(kTag) + R"({"events":[{"step":1,"time":"now","what":"a"}]}</script>)");
  HtmlReport resumed = report();
  resumed.begin(run_from(5));
  EXPECT_EQ(shown()["events"][0]["time"], 0);
}

TEST_F(HtmlReportTest, TrainingDoesNotWaitForTheDisk) {
  const ChildResult child = run_with_failing_calls({{SYS_fsync, EIO}}, [this] { report().begin(run_from(0)); });
  if (child.status == kNotPermitted) GTEST_SKIP() << "system calls cannot be made to fail here";
  EXPECT_EQ(child.status, 0) << child.errors;
  EXPECT_EQ(shown()["step"], 0);
}

TEST_F(HtmlReportTest, WhatCannotBeReadOrWrittenIsAnError) {
  HtmlReport nowhere(folder_ / "missing/report.html", folder_ / "metrics.jsonl");
  EXPECT_ERROR(nowhere.begin(run_from(0)), ExitCode::disk,
               "missing/report.html: open failed: No such file or directory");
  EXPECT_ERROR(nowhere.event({1, "saved"}), ExitCode::disk, "missing/report.html");
  ASSERT_EQ(mkdir((folder_ / "metrics.jsonl").c_str(), 0777), 0);
  HtmlReport unreadable = report();
  EXPECT_ERROR(unreadable.begin(run_from(5)), ExitCode::disk, "metrics.jsonl");
}

}  // namespace
}  // namespace gpt::report
