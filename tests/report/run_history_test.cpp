#include "gpt/report/run_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/scratch_folder.h"

namespace gpt::report {
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
  EXPECT_EQ(history.last_devices,
            (std::vector<DeviceUse>{
                {.cores = 2, .cores_busy = 1.5, .cores_others = 0.25, .memory_used_mb = 2, .memory_mb = 8}}));
  EXPECT_EQ(history.cores_busy.points()[0].value, 1.5);
  EXPECT_EQ(history.cores_others.points()[0].value, 0.25);
  EXPECT_EQ(history.device_memory.points()[0].value, 0.25);
  EXPECT_TRUE(history.gpu_busy.points().empty());
  history.add(StepRecord{.step = 3, .mfu = {}});
  EXPECT_EQ(history.last_devices.size(), 1u) << "it is not read with every step";
  for (const char* nonsense : {"7", "[]", "null"}) {
    RunHistory other;
    EXPECT_TRUE(read_metrics_line(line(nonsense), 10, other));
    EXPECT_TRUE(other.last_devices.empty()) << nonsense;
  }
  RunHistory odd;
  read_metrics_line(
      line(
          R"({"utilization":null,"power_w":-1,"temperature_c":"hot","clock_mhz":1e300,"memory_mb":0,"memory_used_mb":1})"),
      10, odd);
  EXPECT_EQ(odd.last_devices, (std::vector<DeviceUse>{{.memory_used_mb = 1, .memory_mb = 0}}));
  EXPECT_TRUE(odd.device_memory.points().empty());
}

TEST(RunHistory, TheLeastBusyOfSeveralDevicesIsDrawn) {
  RunHistory history;
  EXPECT_TRUE(read_metrics_line(
      R"({"step":2,"loss":4,"step_ms":10,"tokens_per_second":3200,"device":{"utilization":0.4},"devices":[{"utilization":0.4,)"
      R"("memory_used_mb":1,"memory_mb":4},{"utilization":0.9,"memory_used_mb":3,"memory_mb":4},7]})",
      10, history));
  EXPECT_EQ(history.last_devices, (std::vector<DeviceUse>{{.utilization = 0.4, .memory_used_mb = 1, .memory_mb = 4},
                                                          {.utilization = 0.9, .memory_used_mb = 3, .memory_mb = 4},
                                                          {}}));
  EXPECT_EQ(history.gpu_busy.points()[0].value, 0.4);
  EXPECT_EQ(history.device_memory.points()[0].value, 0.75);
}

TEST(RunHistory, NormsOfLayersAreReadBack) {
  const auto line = [](const std::string& norms) {
    return R"({"step":2,"loss":4,"step_ms":10,"tokens_per_second":3200,"norms":)" + norms + "}";
  };
  RunHistory history;
  EXPECT_TRUE(read_metrics_line(line(R"({"gradient":[1,2,null],"weight":[4,5,8],"update":[0.5,1,2]})"), 10, history));
  ASSERT_EQ(history.layers.size(), 3u);
  EXPECT_EQ(history.layers[1].name, "h.0");
  EXPECT_EQ(history.layers[0].gradient.points()[0].value, 1);
  EXPECT_EQ(history.layers[2].gradient.points()[0].value, std::nullopt);
  EXPECT_EQ(history.layers[2].weight.points()[0].value, 8);
  EXPECT_EQ(history.layers[2].change.points()[0].value, 0.25);
  for (const char* nonsense :
       {"7", "{}", R"({"gradient":[1,2],"weight":[1,2],"update":[1]})", R"({"gradient":[1],"weight":[1],"update":[1]})",
        R"({"gradient":1,"weight":2,"update":3})"}) {
    RunHistory other;
    EXPECT_TRUE(read_metrics_line(line(nonsense), 10, other)) << nonsense;
    EXPECT_TRUE(other.layers.empty()) << nonsense;
    EXPECT_FALSE(other.loss.empty()) << nonsense;
  }
}

// A model of a thousand layers has lines of 40,000 bytes.
TEST(RunHistory, OfManyLayersTheFirstTheLastAndSomeBetweenAreKept) {
  constexpr int64_t kLayers = 1002;
  std::vector<double> numbers;
  for (int64_t layer = 0; layer < kLayers; ++layer) numbers.push_back(1.23456 + static_cast<double>(layer));
  const std::string list = nlohmann::json(numbers).dump();
  RunHistory history;
  EXPECT_TRUE(read_metrics_line(R"({"step":2,"loss":4,"step_ms":10,"norms":{"gradient":)" + list + R"(,"weight":)" +
                                    list + R"(,"update":)" + list + "}}",
                                10, history));
  std::vector<std::string> names;
  for (const RunHistory::Layer& layer : history.layers) names.push_back(layer.name);
  ASSERT_EQ(names,
            (std::vector<std::string>{"embeddings", "h.142", "h.285", "h.428", "h.571", "h.714", "h.857", "final"}));
  EXPECT_EQ(history.layers[1].gradient.points()[0].value, 1.23456 + 143);
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
}  // namespace gpt::report
