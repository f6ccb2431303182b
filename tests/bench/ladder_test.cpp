#include "gpt/bench/ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gpt/bench/results.h"
#include "gpt/core/error.h"

namespace gpt {
namespace {

// Rungs that only move the learning rate, the seed and the threads, which the measurement below reads.
std::vector<Rung> toy_rungs() {
  return {{"faster", "halves the time", [](Config& config) { config.seed *= 2; }},
          {"slower", "doubles the time", [](Config& config) { config.threads += 1; }},
          {"absent", "cannot be", [](Config&) { FAIL() << "applied"; }, "needs a GPU"},
          {"wrong", "changes the loss", [](Config& config) { config.training.schedule.learning_rate = 9; }},
          {"broken", "cannot be run", [](Config& config) { config.output_dir = "broken"; }},
          {"same", "changes nothing", [](Config& config) { config.training.label_smoothing = 0.5; }}};
}

std::vector<Rung> toy_variants() {
  std::vector<Rung> result = variants(DeviceInfo{});
  result.push_back({"other", "another device", [](Config& config) { config.device = "other", config.seed *= 4; }});
  return result;
}

struct Machine {
  int64_t calls = 0, stop_after = 1000;
  std::vector<int64_t> batch_sizes, updates;

  std::optional<Measurement> operator()(const Config& config, const MeasurementLength& length) {
    if (++calls > stop_after) return std::nullopt;
    if (config.output_dir == "broken") throw Error(ExitCode::memory, "too large");
    batch_sizes.push_back(config.training.batch_size), updates.push_back(length.updates);
    // A machine that becomes slower with every call, as one does that others use.
    const double drift = 1 + 0.001 * static_cast<double>(calls);
    const double step_ms = 100 * drift * static_cast<double>(1 + config.threads) / static_cast<double>(config.seed);
    return Measurement{.step_ms = step_ms,
                       .cpu_ms = step_ms,
                       .tokens_per_second = 1e6 / step_ms,
                       .peak_bytes = 1'000'000,
                       .loss = config.training.schedule.learning_rate == 9 ? 5.0 : 4.0,
                       .start_seconds = 0};
  }
};

Config toy_config() {
  Config config;
  config.seed = 1;
  return config;
}

Ladder climb_with(Machine& machine, const std::vector<Rung>& rungs = toy_rungs()) {
  const auto ignore = [](double share, const std::string&) {
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
  };
  return climb(toy_config(), rungs, toy_variants(), 60, std::ref(machine), ignore);
}

const LadderRow& row(const std::vector<LadderRow>& rows, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const LadderRow& row) { return row.name == name; });
  EXPECT_NE(found, rows.end()) << name;
  return *found;
}

TEST(Ladder, KeepsWhatIsFasterAndLeavesOutTheRest) {
  Machine machine;
  const Ladder ladder = climb_with(machine);
  EXPECT_TRUE(ladder.complete);
  EXPECT_TRUE(row(ladder.rows, "faster").kept);
  EXPECT_NEAR(row(ladder.rows, "faster").gain, 2, 0.01);
  EXPECT_FALSE(row(ladder.rows, "slower").kept);
  EXPECT_NEAR(row(ladder.rows, "slower").gain, 0.5, 0.01);
  EXPECT_EQ(row(ladder.rows, "slower").verdict, "left out: slower here");
  EXPECT_FALSE(row(ladder.rows, "absent").measurement);
  EXPECT_EQ(row(ladder.rows, "absent").verdict, "needs a GPU");
  EXPECT_FALSE(row(ladder.rows, "wrong").kept);
  EXPECT_EQ(row(ladder.rows, "wrong").verdict, "left out: the loss differs by +25.0 %");
  EXPECT_FALSE(row(ladder.rows, "broken").kept);
  EXPECT_EQ(row(ladder.rows, "broken").verdict, "too large");
  // What was left out is not below the next step.
  EXPECT_TRUE(row(ladder.rows, "same").kept);
  EXPECT_NEAR(row(ladder.rows, "same").total_gain, 2, 0.01);
}

TEST(Ladder, TakesEachOfTheFullSetAwayAgain) {
  Machine machine;
  const Ladder ladder = climb_with(machine);
  ASSERT_EQ(ladder.removed.size(), 2u);  // of "faster" and "same"
  EXPECT_NEAR(row(ladder.removed, "faster").gain, 0.5, 0.01);
  EXPECT_EQ(row(ladder.removed, "faster").verdict, "worth it");
  EXPECT_EQ(row(ladder.removed, "same").verdict, "no difference beside the others");
}

TEST(Ladder, WhatALaterRungSetsTooIsNotMeasuredWithout) {
  const auto halve = [](Config& config) { config.seed = 2; };
  Machine machine;
  const Ladder ladder = climb_with(machine, {{"first", "halves the time", halve}, {"second", "does too", halve}});
  EXPECT_TRUE(ladder.complete);
  EXPECT_TRUE(row(ladder.rows, "second").kept);
  for (const char* name : {"first", "second"}) {
    EXPECT_FALSE(row(ladder.removed, name).measurement) << name;
    EXPECT_EQ(row(ladder.removed, name).verdict, "nothing changes") << name;
  }
}

TEST(Ladder, VariesTheFullSet) {
  Machine machine;
  const Ladder ladder = climb_with(machine);
  const std::vector<int64_t> tried(machine.batch_sizes.end() - 5, machine.batch_sizes.end() - 1);
  EXPECT_EQ(tried, (std::vector<int64_t>{32, 64, 128, 256}));
  ASSERT_EQ(ladder.variants.size(), 6u);
  EXPECT_FALSE(row(ladder.variants, "cpu").measurement);  // the device is one
  EXPECT_EQ(row(ladder.variants, "cpu").verdict, "all of this was measured on the CPU");
  EXPECT_NEAR(row(ladder.variants, "256").gain, 1, 0.05);
  EXPECT_NEAR(row(ladder.variants, "other").gain, 4, 0.2);
  EXPECT_EQ(machine.updates.back(), 3);  // on another device, whose speed is not known
}

TEST(Rungs, AGpusLadderLoadsDataInEveryWayAndEndsOnTheCpu) {
  DeviceInfo gpu = describe_gpu(at::Device(at::kCUDA, 0), "a card", 1LL << 34, 9, 0);
  Config config;
  const Config start = without_rungs(config);
  EXPECT_EQ(start.data.num_workers, 0);
  EXPECT_EQ(start.data.resident, Resident::off);
  EXPECT_FALSE(start.data.pin_memory);
  config = start;
  std::string loading;
  for (const Rung& rung : rungs(config, gpu)) {
    if (rung.name.starts_with("workers") || rung.name == "pinned" || rung.name == "resident") {
      EXPECT_EQ(rung.obstacle, "");
      loading += rung.name + " ";
      rung.apply(config);
    }
  }
  EXPECT_EQ(loading, "workers_2 workers pinned resident ");
  EXPECT_EQ(config.data.num_workers, 4);
  EXPECT_EQ(config.data.resident, Resident::on);
  EXPECT_TRUE(config.data.pin_memory);
  const Rung cpu = variants(gpu).back();
  EXPECT_EQ(cpu.obstacle, "");
  cpu.apply(config);
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.training.precision.dtype, Dtype::automatic);
}

TEST(Ladder, KeepsWhatWasMeasuredBeforeASignal) {
  Machine machine;
  machine.stop_after = 10;
  const Ladder ladder = climb_with(machine);
  EXPECT_FALSE(ladder.complete);
  EXPECT_GE(ladder.rows.size(), 2u);
  EXPECT_LT(ladder.rows.size(), toy_rungs().size() + 1);
}

TEST(Ladder, TheEffortFitsIntoTheTime) {
  for (const double step_ms : {1.0, 50.0, 3000.0}) {
    for (const double seconds : {60.0, 600.0}) {
      constexpr double kAround = 0.8;
      const auto [length, rounds] =
          effort_for({.update_seconds = step_ms / 1000, .around_seconds = kAround}, 12, seconds);
      const double of_run = kAround + static_cast<double>(length.warm_up + length.updates) * step_ms / 1000;
      EXPECT_GE(rounds, 1);
      EXPECT_GE(length.updates, 3);
      const bool is_least = rounds == 1 && length.updates == 3;
      EXPECT_TRUE(is_least || 2 * 12 * static_cast<double>(rounds) * of_run <= 1.05 * seconds)
          << step_ms << " ms, " << seconds << " s: " << rounds << " x " << length.updates;
    }
  }
}

TEST(Ladder, ResultsNameEveryRow) {
  Machine machine;
  BenchResults results;
  results.title = "ladder", results.command = "gpt-bench ladder", results.date = "2026-01-01T00:00:00Z";
  const Ladder ladder = climb_with(machine);
  results.config = toy_config(), results.findings = findings(ladder);
  results.device.name = "a <fast> CPU & more";
  const std::string table = to_markdown(results), json = to_json(results), chart = to_svg(results);
  for (const LadderRow& row : ladder.rows) {
    EXPECT_NE(table.find("| " + row.name + " "), std::string::npos) << row.name;
    EXPECT_NE(json.find("\"" + row.name + "\""), std::string::npos) << row.name;
    EXPECT_EQ(chart.find(">" + row.name + "<") != std::string::npos, row.measurement.has_value()) << row.name;
  }
  EXPECT_NE(chart.find("a &lt;fast> CPU &amp; more"), std::string::npos);
}

TEST(Measurement, SurvivesJson) {
  const Measurement m{.step_ms = 12.5,
                      .cpu_ms = 20.25,
                      .tokens_per_second = 1e5,
                      .peak_bytes = 1LL << 40,
                      .tensor_bytes = 1LL << 39,
                      .loss = 3.5,
                      .start_seconds = 1.5};
  const Measurement back = measurement_from_json(to_json(m));
  EXPECT_EQ(back.step_ms, m.step_ms);
  EXPECT_EQ(back.cpu_ms, m.cpu_ms);
  EXPECT_EQ(back.tokens_per_second, m.tokens_per_second);
  EXPECT_EQ(back.peak_bytes, m.peak_bytes);
  EXPECT_EQ(back.tensor_bytes, m.tensor_bytes);
  EXPECT_EQ(back.loss, m.loss);
  EXPECT_EQ(back.start_seconds, m.start_seconds);
}

}  // namespace
}  // namespace gpt
