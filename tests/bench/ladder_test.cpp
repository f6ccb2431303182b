#include "gpt/bench/ladder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/unpadded.h"
#include "config/faults.h"
#include "gpt/bench/results.h"
#include "gpt/core/error.h"
#include "gpt/core/version.h"

namespace gpt::bench {
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
  std::vector<Rung> result = variants(device::DeviceInfo{});
  result.push_back({"other", "another device", [](Config& config) { config.device = "other", config.seed *= 4; }});
  return result;
}

struct LadderMachine {
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
                       .threads = 3,
                       .loss = config.training.schedule.learning_rate == 9 ? 5.0 : 4.0,
                       .start_seconds = 0};
  }
};

Config toy_config() {
  Config config;
  config.seed = 1;
  return config;
}

Ladder climb_with(LadderMachine& machine, const std::vector<Rung>& rungs = toy_rungs(), bool keeps_all = false,
                  double seconds = 60) {
  const auto ignore = [](double share, const std::string&) {
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
  };
  const LadderPlan plan{.rungs = rungs, .variants = toy_variants(), .keeps_all = keeps_all, .seconds = seconds};
  return climb(toy_config(), plan, std::ref(machine), ignore);
}

const LadderRow& row(const std::vector<LadderRow>& rows, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const LadderRow& row) { return row.name == name; });
  if (found == rows.end()) throw std::out_of_range("no row " + name);
  return *found;
}

TEST(Ladder, KeepsWhatIsFasterAndLeavesOutTheRest) {
  LadderMachine machine;
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

TEST(Ladder, AGainThatCannotBeToldDoesNotCountInAll) {
  LadderMachine machine;
  const Ladder ladder = climb_with(machine, toy_rungs(), /*keeps_all=*/false, /*seconds=*/0);  // for one pair
  const LadderRow& faster = row(ladder.rows, "faster");
  EXPECT_TRUE(faster.kept);
  EXPECT_FALSE(faster.is_told) << faster.verdict;
  EXPECT_NEAR(faster.gain, 2, 0.01);
  EXPECT_EQ(faster.total_gain, 1);
  BenchResults results;
  results.wanted = toy_config(), results.findings = findings(ladder);
  const std::string chart = to_svg(results);
  EXPECT_NE(chart.find("<rect class=\"untold\""), std::string::npos) << chart;
  EXPECT_EQ(chart.find(">2.0"), std::string::npos) << chart;
}

std::vector<std::string> names_of(const std::vector<LadderRow>& rows) {
  std::vector<std::string> names;
  for (const LadderRow& row : rows) names.push_back(row.name);
  return names;
}

TEST(Ladder, SwitchesEachOffOrOnInTheFullSet) {
  LadderMachine machine;
  const Ladder ladder = climb_with(machine);
  EXPECT_EQ(names_of(ladder.switched),
            (std::vector<std::string>{"start", "without faster", "with slower", "with wrong", "without same"}));
  EXPECT_NEAR(row(ladder.switched, "start").gain, 0.5, 0.01);
  EXPECT_EQ(row(ladder.switched, "start").verdict, "the full set is 2.00x as fast");
  EXPECT_NEAR(row(ladder.switched, "without faster").gain, 0.5, 0.01);
  EXPECT_EQ(row(ladder.switched, "without faster").verdict, "worth it");
  EXPECT_NEAR(row(ladder.switched, "with slower").gain, 0.5, 0.01);
  EXPECT_EQ(row(ladder.switched, "with slower").verdict, "costs time beside the others");
  EXPECT_EQ(row(ladder.switched, "with wrong").verdict, "the loss differs by +25.0 %");
  EXPECT_EQ(row(ladder.switched, "without same").verdict, "no difference beside the others");
}

std::vector<Rung> rungs_that_need_each_other() {
  return {{"slower", "doubles the time", [](Config& config) { config.threads += 1; }},
          {"needy", "nothing", [](Config&) { FAIL() << "applied"; }, "", "", {"slower"}},
          {"first", "halves the time", [](Config& config) { config.seed *= 2; }},
          {"second", "halves it again", [](Config& config) { config.seed *= 2; }, "", "", {"first"}},
          {"third", "halves it again", [](Config& config) { config.seed *= 2; }, "", "", {"second"}}};
}

TEST(Ladder, WhatLacksWhatItNeedsIsNotMeasured) {
  LadderMachine machine;
  const Ladder ladder = climb_with(machine, rungs_that_need_each_other());
  EXPECT_FALSE(row(ladder.rows, "needy").measurement);
  EXPECT_FALSE(row(ladder.rows, "needy").kept);
  EXPECT_EQ(row(ladder.rows, "needy").verdict, "does nothing without slower");
  EXPECT_EQ(names_of(ladder.switched), (std::vector<std::string>{"start", "with slower", "without first+second+third",
                                                                 "without second+third", "without third"}));
  EXPECT_NEAR(row(ladder.switched, "without first+second+third").gain, 1.0 / 8, 0.01);
  EXPECT_NEAR(row(ladder.switched, "without second+third").gain, 1.0 / 4, 0.01);
}

TEST(Ladder, ARungDoesNotReplaceItsRival) {
  const auto quarter = [](Config& config) { config.seed = 4; };
  for (const bool has_rival : {true, false}) {
    std::vector<Rung> rungs{{"rival", "halves the time", [](Config& config) { config.seed = 2; }},
                            {"rung", "halves it again", quarter, "", "", {}, "rival"}};
    if (!has_rival) rungs[0].obstacle = "needs a GPU";
    LadderMachine machine;
    const Ladder ladder = climb_with(machine, rungs);
    EXPECT_EQ(row(ladder.rows, "rung").kept, !has_rival);
    EXPECT_EQ(row(ladder.rows, "rung").verdict, has_rival ? "left out: faster, but rival is kept" : "kept: faster");
    EXPECT_EQ(ladder.switched.back().name, has_rival ? "with rung" : "without rung");
    EXPECT_EQ(ladder.switched.back().verdict, "worth it");
  }
}

TEST(Ladder, ACombinationKeepsWhateverCanBeRun) {
  std::vector<Rung> rungs = toy_rungs();
  std::erase_if(rungs, [](const Rung& rung) { return rung.name == "absent"; });
  LadderMachine machine;
  const Ladder ladder = climb_with(machine, rungs, /*keeps_all=*/true);
  EXPECT_TRUE(ladder.complete);
  for (const LadderRow& row : ladder.rows) EXPECT_EQ(row.kept, row.name != "broken") << row.name;
  EXPECT_EQ(row(ladder.rows, "slower").verdict, "slower here");
  EXPECT_NEAR(row(ladder.rows, "slower").total_gain, 1, 0.01);
  EXPECT_EQ(row(ladder.rows, "wrong").verdict, "the loss differs by +25.0 %");
  EXPECT_EQ(row(ladder.rows, "broken").verdict, "too large");
  EXPECT_NEAR(row(ladder.rows, "same").total_gain, 1, 0.02);
  EXPECT_EQ(names_of(ladder.switched),
            (std::vector<std::string>{"start", "without faster", "without slower", "without wrong", "without same"}));
  EXPECT_NE(row(ladder.switched, "start").verdict.find("as fast, but the loss differs by +25.0 %"), std::string::npos);
}

TEST(Ladder, LossesAreShownWithTheirDifferenceFromTheStart) {
  LadderMachine machine;
  const Findings result = findings(climb_with(machine));
  const auto json = nlohmann::json::parse(result.json);
  const auto& rows = json.at("rows");
  EXPECT_EQ(rows.at(0).at("loss_difference"), 0.0);
  EXPECT_EQ(rows.at(4).at("name"), "wrong");
  EXPECT_EQ(rows.at(4).at("loss_difference"), 1.0);
  EXPECT_TRUE(rows.at(3).at("loss_difference").is_null()) << "it was not measured";
  EXPECT_TRUE(json.at("variants").at(0).at("loss_difference").is_null()) << "its batches are others";
  const std::string text = to_markdown(result.text);
  EXPECT_NE(text.find("| 5.0000 | +1.0000 | left out: the loss differs by +25.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("the full set, `faster+same`, and that without"), std::string::npos) << text;
}

// 30 ms of a step of 100 at least, and half as many where the rung's type of products is twice as fast.
TEST(Ladder, EachRowSaysHowCloseItComesToItsLimit) {
  const auto measure = [](const Config& config, const MeasurementLength&) {
    return std::optional(Measurement{.step_ms = 100.0 / static_cast<double>(config.seed),
                                     .tokens_per_second = 1e4 * static_cast<double>(config.seed),
                                     .peak_bytes = 1,
                                     .loss = 4,
                                     .work = {{"products", {.flops = 3e10, .bytes = 1}}}});
  };
  const auto speed_of = [](const Config& config) {
    return std::optional(
        plan::MachineSpeed{.flops = 1e12 * (config.training.label_smoothing > 0 ? 2 : 1), .bytes_per_second = 1e9});
  };
  const LadderPlan plan{.rungs = toy_rungs(), .variants = {}, .seconds = 60, .speed_of = speed_of};
  const Ladder ladder = climb(toy_config(), plan, measure, [](double, const std::string&) {});
  EXPECT_DOUBLE_EQ(*row(ladder.rows, "start").least_ms, 30);
  EXPECT_DOUBLE_EQ(*row(ladder.rows, "faster").least_ms, 30);
  EXPECT_DOUBLE_EQ(*row(ladder.rows, "same").least_ms, 15);
  EXPECT_FALSE(row(ladder.rows, "absent").least_ms);
  const Findings result = findings(ladder);
  const std::string text = unpadded(result.text);
  EXPECT_NE(text.find("| 2.00x | 60 % | 4.0000 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| start | 100.0 | - | 10.0k | 1 byte | 1.00x | - | 1.00x | 30 % |"), std::string::npos) << text;
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(result.json)["rows"][0]["least_ms"], 30);
}

TEST(Ladder, PairsAreShownOneByOneOrByTheirRange) {
  const auto cell = [](std::vector<double> gains) {
    Ladder ladder;
    ladder.rows.emplace_back().measurement = Measurement();
    ladder.rows[0].pair_gains = std::move(gains);
    return to_markdown(findings(ladder).text);
  };
  EXPECT_NE(cell({1.5, 1.25, 2}).find("| 1.50, 1.25, 2.00 |"), std::string::npos) << cell({1.5, 1.25, 2});
  EXPECT_NE(cell({1.5, 0.5, 2, 1}).find("| 0.50 to 2.00, 4 pairs |"), std::string::npos) << cell({1.5, 0.5, 2, 1});
}

TEST(Ladder, WhatALaterRungSetsTooIsNotMeasuredWithout) {
  const auto halve = [](Config& config) { config.seed = 2; };
  LadderMachine machine;
  const Ladder ladder = climb_with(machine, {{"first", "halves the time", halve}, {"second", "does too", halve}});
  EXPECT_TRUE(ladder.complete);
  EXPECT_TRUE(row(ladder.rows, "second").kept);
  for (const char* name : {"without first", "without second"}) {
    EXPECT_FALSE(row(ladder.switched, name).measurement) << name;
    EXPECT_EQ(row(ladder.switched, name).verdict, "nothing changes: the others set it too") << name;
  }
}

TEST(Ladder, WhatAnotherOfItsGroupSetsTooIsTakenAwayWithTheGroup) {
  const std::vector<Rung> rungs{{"other", "changes nothing",
                                 [](Config& config) { config.training.label_smoothing = 0.5; }},
                                {"some", "halves the time", [](Config& config) { config.seed = 2; }, "", "group"},
                                {"more", "halves it again", [](Config& config) { config.seed = 4; }, "", "group"},
                                {"most", "halves it again", [](Config& config) { config.seed = 8; }, "", "group"}};
  LadderMachine machine;
  const Ladder ladder = climb_with(machine, rungs);
  EXPECT_EQ(names_of(ladder.switched),
            (std::vector<std::string>{"start", "without other", "without some+more+most", "without most"}));
  EXPECT_NEAR(row(ladder.switched, "without some+more+most").gain, 1.0 / 8, 0.01);
  EXPECT_NEAR(row(ladder.switched, "without most").gain, 1.0 / 2, 0.01);
}

// Takes longer with LibTorch's flash attention, and half as long with operators that are compiled.
std::optional<Measurement> slow_flash(const Config& config, const MeasurementLength&) {
  const ExecutionConfig& execution = config.training.execution;
  const bool is_flash = execution.attention == AttentionKernel::automatic;
  const double step_ms = execution.use_compile ? (is_flash ? 25 : 50) : is_flash ? 200 : 100;
  return Measurement{.step_ms = step_ms, .tokens_per_second = 1e6 / step_ms, .peak_bytes = 1, .loss = 4};
}

TEST(Ladder, CompileBringsItsAttentionWhereLibTorchsWasLeftOut) {
  const LadderPlan plan{.rungs = rungs(toy_config(), device::DeviceInfo()), .variants = {}, .seconds = 60};
  const Ladder ladder = climb(toy_config(), plan, slow_flash, [](double, const std::string&) {});
  EXPECT_EQ(row(ladder.rows, "flash").verdict, "left out: slower here");
  EXPECT_EQ(row(ladder.rows, "compile").gain, 4);
  EXPECT_EQ(row(ladder.switched, "with flash").verdict, "nothing changes: the others set it too");
  EXPECT_EQ(row(ladder.switched, "without compile").gain, 0.25);
}

TEST(Ladder, VariesTheFullSet) {
  LadderMachine machine;
  const Ladder ladder = climb_with(machine);
  for (const int64_t size : {32, 96, 128, 160, 192, 256})  // the full set itself has 64
    EXPECT_EQ(std::count(machine.batch_sizes.begin(), machine.batch_sizes.end(), size), 3) << size;
  ASSERT_EQ(ladder.variants.size(), 9u);
  EXPECT_FALSE(row(ladder.variants, "cpu").measurement);  // the device is one
  EXPECT_EQ(row(ladder.variants, "cpu").verdict, "all of this was measured on the CPU");
  EXPECT_NEAR(row(ladder.variants, "256").gain, 1, 0.05);
  EXPECT_NEAR(row(ladder.variants, "other").gain, 4, 0.2);
  EXPECT_EQ(std::ssize(row(ladder.variants, "other").pair_gains), 3) << "each in turn with the full set";
  EXPECT_EQ(machine.updates.back(), 3) << "on another device, whose speed is not known";
}

TEST(Ladder, WhatIsSlowerThanTheStartGetsFewerPairs) {
  bool is_slow = false;
  const auto measure = [&is_slow](const Config&, const MeasurementLength&) {
    if (is_slow) usleep(100'000);
    return std::optional(Measurement{.step_ms = 0.01, .tokens_per_second = 1e6, .peak_bytes = 1, .loss = 4});
  };
  const LadderPlan plan{.rungs = toy_rungs(), .variants = {}, .seconds = 0.2};
  const auto slow_down = [&is_slow](double, const std::string& what) { is_slow = what == "same"; };
  const Ladder ladder = climb(toy_config(), plan, measure, slow_down);
  EXPECT_EQ(row(ladder.rows, "faster").pair_gains.size(), 3u);
  EXPECT_EQ(row(ladder.rows, "same").pair_gains.size(), 1u);
}

TEST(Ladder, KeepsWhatWasMeasuredBeforeASignal) {
  LadderMachine machine;
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

TEST(Results, NameTheMachineAndTheVersions) {
  const auto here = this_machine(at::kCPU);
  EXPECT_FALSE(here.cpu.empty());
  EXPECT_NE(here.system.find("Linux "), std::string::npos) << here.system;
  EXPECT_GT(here.memory_bytes, 100'000'000);
  EXPECT_GE(here.cpu_threads, 1);
  EXPECT_LE(here.cores, here.cpu_threads);
  EXPECT_EQ(here.driver, "");

  BenchResults results;
  results.findings = {.text = {}, .json = "{}", .chart_title = "", .threads = 4, .complete = true};
  results.machine = {"a CPU", "a system", 32'000'000'000, 4, 8, "580.65.06", "9.15.1"};
  const std::string text = to_markdown(results);
  EXPECT_NE(text.find("a CPU, 4 cores, 8 hardware threads, 32.0 GB of memory; a system\n"), std::string::npos) << text;
  EXPECT_NE(text.find("(commit " + commit_id() + "), LibTorch 2."), std::string::npos) << text;
  EXPECT_NE(text.find(", NVIDIA driver 580.65.06, cuDNN 9.15.1\n"), std::string::npos) << text;
  const auto machine = nlohmann::json::parse(to_json(results)).at("machine");
  EXPECT_EQ(machine, nlohmann::json::parse(R"({"cpu": "a CPU", "cores": 4, "cpu_threads": 8, "system": "a system",
      "memory_bytes": 32000000000, "driver": "580.65.06", "cudnn": "9.15.1"})"));
  results.machine = {"a CPU", "a system", 32'000'000'000, 0, 8, "", ""};
  EXPECT_TRUE(nlohmann::json::parse(to_json(results)).at("machine").at("cores").is_null()) << "it is not known";
  EXPECT_EQ(to_markdown(results).find("driver"), std::string::npos);
}

// As on a GPU, which computes in milliseconds what took seconds to prepare.
TEST(Ladder, UpdatesTakeASecondWhereAStartTakesMore) {
  const auto length_of = [](double step_ms, double around_seconds, double seconds) {
    return length_for({.update_seconds = step_ms / 1000, .around_seconds = around_seconds}, seconds);
  };
  EXPECT_EQ(length_of(/*step_ms=*/10, /*around_seconds=*/8, /*seconds=*/2).updates, 100);
  EXPECT_EQ(length_of(10, 8, 2).warm_up, 5);
  EXPECT_EQ(length_of(1, 8, 2).updates, 200) << "more say nothing else";
  EXPECT_EQ(length_of(500, 8, 2).updates, 3);
  EXPECT_EQ(length_of(500, 8, 2).warm_up, 1);
  EXPECT_EQ(length_of(10, 0.1, 0.05).updates, 10) << "no longer than the start";
  EXPECT_EQ(length_of(10, 1, 600).updates, 200);
  // Rather fewer rounds than less in each.
  const Effort effort = effort_for({.update_seconds = 0.01, .around_seconds = 8}, /*count=*/20, /*seconds=*/600);
  EXPECT_EQ(effort.rounds, 1);
  EXPECT_EQ(effort.length.updates, 200);
  EXPECT_EQ(effort_for({.update_seconds = 0.01, .around_seconds = 2}, 20, 600).rounds, 3);
}

TEST(Ladder, ResultsNameEveryRow) {
  LadderMachine machine;
  BenchResults results;
  results.title = "ladder", results.command = "gpt-bench ladder", results.date = "2026-01-01T00:00:00Z";
  const Ladder ladder = climb_with(machine);
  results.wanted = toy_config(), results.findings = findings(ladder);
  results.device.name = "a <fast> CPU & more";
  const std::string table = to_markdown(results), json = to_json(results), chart = to_svg(results);
  for (const LadderRow& row : ladder.rows) {
    EXPECT_NE(table.find("| " + row.name + " "), std::string::npos) << row.name;
    EXPECT_NE(json.find("\"" + row.name + "\""), std::string::npos) << row.name;
    EXPECT_EQ(chart.find(">" + row.name + "<") != std::string::npos, row.measurement.has_value()) << row.name;
  }
  EXPECT_NE(chart.find(">kept</text>"), std::string::npos);
  EXPECT_NE(chart.find(">left out</text>"), std::string::npos);
  EXPECT_NE(table.find("Training for 1,000 updates takes "), std::string::npos) << table;
  EXPECT_NE(chart.find("a &lt;fast> CPU &amp; more, 3 threads<"), std::string::npos);
  EXPECT_NE(chart.find("gpt-bench ladder, 2026-01-01T00:00:00Z<"), std::string::npos);
  // Single times rise with every call of this machine; the bars do not.
  const double start_ms = ladder.rows[0].measurement->step_ms;
  for (const Bar& bar : results.findings.bars)
    EXPECT_DOUBLE_EQ(bar.length, start_ms / row(ladder.rows, bar.name).total_gain) << bar.name;
  EXPECT_NE(table.find("a <fast> CPU & more, 3 threads; "), std::string::npos) << table;
  EXPECT_EQ(nlohmann::json::parse(json).at("threads"), 3) << "those that the measurement used";
}

}  // namespace
}  // namespace gpt::bench
