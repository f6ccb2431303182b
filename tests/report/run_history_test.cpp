#include "gpt/report/run_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/scratch_folder.h"

namespace gpt {
namespace {

TEST(RunHistory, KnowsTheTimeAndTheTokensOfTheSteps) {
  RunHistory history;
  const auto log = [&](int64_t step, double step_ms) {
    history.add(StepRecord{.step = step, .step_ms = step_ms, .tokens_per_second = 100, .mfu = {}});
  };
  log(500, 1000);  // a run that began from another's checkpoint, maybe at step 499
  EXPECT_EQ(history.seconds, 1);
  log(600, 250);
  EXPECT_EQ(history.seconds, 26);
  EXPECT_EQ(history.tokens, 2600);
  const std::vector<CurvePoint> seconds = history.seconds_at_step.points(), tokens = history.tokens_at_step.points();
  ASSERT_EQ(seconds.size(), 2u);
  EXPECT_EQ(seconds[0].value, 1);
  EXPECT_EQ(seconds[1].value, 26);
  EXPECT_EQ(tokens[1].value, 2600);
  log(700, NAN);
  EXPECT_EQ(history.seconds, 26);
}

// What was logged of a step stands in some lines, its loss in all.
TEST(RunHistory, TheLossesBetweenLoggedStepsArePartOfTheCurveAlone) {
  const ScratchFolder folder;
  const std::string path =
      folder.file("metrics.jsonl", R"({"step":1,"loss":4.5,"time":1,"tokens":32})"
                                   "\n"
                                   R"({"step":2,"loss":4,"lr":0.1,"grad_norm":1,"step_ms":10,"tokens_per_second":3200})"
                                   "\n"
                                   R"({"step":3,"loss":null,"time":1,"tokens":96})"
                                   "\n");
  RunHistory history;
  read_metrics(path, 10, history);
  ASSERT_EQ(history.loss.points().size(), 3u);
  EXPECT_EQ(history.loss.points()[0].value, 4.5);
  EXPECT_FALSE(history.loss.points()[2].value);
  EXPECT_EQ(history.learning_rate.points().size(), 1u);
  EXPECT_EQ(history.last_step->step, 2);
}

TEST(RunHistory, WhatTheDeviceDidIsReadBack) {
  const auto line = [](const std::string& device) {
    return R"({"step":2,"loss":4,"step_ms":10,"tokens_per_second":3200,"device":)" + device + "}";
  };
  RunHistory history;
  EXPECT_TRUE(
      read_metrics_line(line(R"({"cores":2,"cores_busy":1.5,"cores_others":0.25,"memory_used_mb":2,"memory_mb":8})"),
                        10, history));
  EXPECT_EQ(*history.last_device,
            (DeviceUse{.cores = 2, .cores_busy = 1.5, .cores_others = 0.25, .memory_used_mb = 2, .memory_mb = 8}));
  EXPECT_EQ(history.cores_busy.points()[0].value, 1.5);
  EXPECT_EQ(history.cores_others.points()[0].value, 0.25);
  EXPECT_EQ(history.device_memory.points()[0].value, 0.25);
  EXPECT_TRUE(history.gpu_busy.points().empty());
  history.add(StepRecord{.step = 3, .mfu = {}});
  EXPECT_TRUE(history.last_device) << "it is not read with every step";
  for (const char* nonsense : {"7", "[]", "null"}) {
    RunHistory other;
    EXPECT_TRUE(read_metrics_line(line(nonsense), 10, other));
    EXPECT_FALSE(other.last_device) << nonsense;
  }
  RunHistory odd;
  read_metrics_line(
      line(
          R"({"utilization":null,"power_w":-1,"temperature_c":"hot","clock_mhz":1e300,"memory_mb":0,"memory_used_mb":1})"),
      10, odd);
  EXPECT_EQ(*odd.last_device, (DeviceUse{.memory_used_mb = 1, .memory_mb = 0}));
  EXPECT_TRUE(odd.device_memory.points().empty());
}

// Lines of losses are read without a parser of JSON, and say the same.
TEST(RunHistory, LinesOfLossesAreReadAsJsonWouldBe) {
  const std::string plain = R"({"step":7,"loss":1.25e-1,"lr":1e-05,"grad_norm":0.5,"time":1764.125,"tokens":512})";
  const auto read = [](const std::string& line) {
    RunHistory history;
    const bool makes_sense = read_metrics_line(line, 10, history);
    const auto points = history.loss.points();
    return std::tuple(makes_sense, points.size(), points.empty() ? std::nullopt : points[0].value,
                      history.grad_norm.last_step(), history.last_step.has_value());
  };
  EXPECT_EQ(read(plain), std::tuple(true, 1u, std::optional(0.125), 7, false));
  EXPECT_EQ(read(plain), read(" " + plain));
  EXPECT_EQ(read(std::string(plain).replace(plain.find("1.25e-1"), 7, "null")),
            std::tuple(true, 1u, std::optional<double>(), 7, false));
  EXPECT_EQ(read(plain.substr(0, plain.size() - 1)), std::tuple(false, 0u, std::optional<double>(), -1, false));
  EXPECT_EQ(read(plain + "}"), std::tuple(false, 0u, std::optional<double>(), -1, false));
  RunHistory history;
  EXPECT_TRUE(read_metrics_line(plain, 6, history));
  EXPECT_TRUE(history.loss.empty());
}

}  // namespace
}  // namespace gpt
