// What readings of a device mean in words.
#include "gpt/report/device_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace gpt::report {
namespace {

using enum DeviceFinding;

DeviceUse gpu(double utilization, double memory_share = 0.85) {
  return {.utilization = utilization, .memory_used_mb = 80'000 * memory_share, .memory_mb = 80'000};
}

DeviceUse cpu(double busy, double others = 0, double memory_share = 0.5) {
  return {.cores = 2,
          .threads = 2,
          .cores_busy = busy,
          .cores_others = others,
          .memory_used_mb = 8'000 * memory_share,
          .memory_mb = 8'000};
}

DeviceUse with(DeviceUse use, DeviceUse::Value DeviceUse::* member, double value) {
  use.*member = value;
  return use;
}

struct Case {
  const char* what;
  DeviceUse use;
  ReachedShare reached;
  std::vector<DeviceFinding> findings;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"nothing is known", {}, {}, {}},
      {"a GPU at work", gpu(0.99), {.mfu = 0.6}, {busy}},
      {"the limit of busy", gpu(0.9), {}, {busy}},
      {"its host is late", gpu(0.62), {.mfu = 0.1}, {busy, idle}},
      {"it waits for data", with(gpu(0.62), &DeviceUse::data_wait, 0.3), {}, {busy, waits_for_data}},
      {"its host waits, and it does not", with(gpu(0.97), &DeviceUse::data_wait, 0.3), {}, {busy}},
      {"busy but slow", gpu(0.99), {.mfu = 0.2}, {busy, busy_but_slow}},
      {"the efficiency counts before MFU", gpu(0.99), {.efficiency = 0.7, .mfu = 0.2}, {busy}},
      {"the limit of its power", with(gpu(0.99), &DeviceUse::slowed_by_power, 0.4), {}, {busy, slowed_by_power}},
      {"hardly", with(gpu(0.99), &DeviceUse::slowed_by_power, 0.05), {}, {busy}},
      {"heat", with(gpu(0.99), &DeviceUse::slowed_by_heat, 1), {}, {busy, slowed_by_heat}},
      {"its board", with(gpu(0.99), &DeviceUse::slowed_by_hardware, 1), {}, {busy, slowed_by_hardware}},
      {"somebody", with(gpu(0.99), &DeviceUse::slowed_by_setting, 1), {}, {busy, slowed_by_setting}},
      {"memory is left", gpu(0.99, 0.3), {}, {busy, memory_unused}},
      {"memory as it should be", gpu(0.99, 0.8), {}, {busy}},
      {"no memory is left", gpu(0.99, 0.96), {}, {busy, memory_full}},
      {"a part of a GPU, whose utilization nobody knows", {.memory_used_mb = 1, .memory_mb = 10}, {}, {memory_unused}},
      {"a CPU at work", cpu(1.95, 0.02), {.efficiency = 0.8}, {busy}},
      {"another program", cpu(0.7, 1.3), {}, {busy, others}},
      {"another program where there is room", with(cpu(1.9, 1.3), &DeviceUse::cores, 8), {}, {busy}},
      {"a little of another program", cpu(1.85, 0.15), {}, {busy}},
      {"the host", with(cpu(1.2), &DeviceUse::cores_stolen, 0.7), {}, {busy, stolen}},
      {"small steps", cpu(1.1, 0.1), {}, {busy, idle}},
      {"a slow disk", with(cpu(1.1), &DeviceUse::data_wait, 0.4), {}, {busy, waits_for_data}},
      {"half of the processors, as asked", with(cpu(0.98), &DeviceUse::threads, 1), {}, {busy}},
      {"the group's memory", cpu(1.95, 0, 0.97), {}, {busy, memory_full}},
      {"memory that a CPU does not need", cpu(1.95, 0, 0.1), {}, {busy}},
      {"a slow CPU", cpu(1.95), {.efficiency = 0.3}, {busy, busy_but_slow}}};
  return all;
}

TEST(DeviceVerdicts, FollowFromTheReadings) {
  for (const Case& c : cases()) {
    std::vector<DeviceFinding> findings;
    for (const DeviceVerdict& verdict : judge(c.use, c.reached)) findings.push_back(verdict.finding);
    EXPECT_EQ(findings, c.findings) << c.what;
  }
}

std::string text_of(DeviceFinding finding, const DeviceUse& use, const ReachedShare& reached = {}) {
  for (const DeviceVerdict& verdict : judge(use, reached))
    if (verdict.finding == finding) return verdict.text;
  return "none";
}

TEST(DeviceVerdicts, SayWhatTheNumbersAre) {
  EXPECT_EQ(text_of(busy, gpu(0.99), {.mfu = 0.41}), "The GPU is busy 99 % of the time, at 41 % of its peak speed.");
  EXPECT_EQ(text_of(busy, cpu(1.9), {.efficiency = 0.47, .mfu = 0.2}),
            "This run keeps 1.9 of 2 cores busy, at 47 % of what a large product and a large copy would allow.");
  EXPECT_EQ(text_of(others, cpu(0.7, 1.3)), "Other programs take 1.3 of 2 cores.");
  EXPECT_EQ(
      text_of(waits_for_data, with(cpu(1.1), &DeviceUse::data_wait, 0.4)),
      "The run waits 40 % of the time for data: threads that build batches ahead (data.num_workers), or a faster disk.");
  EXPECT_EQ(
      text_of(waits_for_data, with(gpu(0.5), &DeviceUse::data_wait, 0.4)),
      "The run waits 40 % of the time for data: more data.num_workers, data.resident: on where there is room for all "
      "of it, or a faster disk.");
  DeviceUse hot = gpu(0.99);
  hot.power_w = 345.4, hot.power_limit_w = 350, hot.temperature_c = 88, hot.slowed_by_power = 0.62,
  hot.slowed_by_heat = 1;
  EXPECT_EQ(text_of(slowed_by_power, hot),
            "The GPU is slowed 62 % of the time by the limit of its power (345 of 350 W), as is usual at full load; "
            "nvidia-smi -pl sets another.");
  EXPECT_EQ(text_of(slowed_by_heat, hot), "The GPU is slowed 100 % of the time by heat (88 °C): see to its cooling.");
  EXPECT_EQ(text_of(memory_full, cpu(1.95, 0, 0.97)),
            "Memory is nearly full, with other programs' part of it: 7.76 GB of 8.00 GB. When it is, the system ends a "
            "process.");
}

TEST(DeviceVerdicts, TheLogHasWhatIsNews) {
  const auto in_log = [](const DeviceUse& use, DeviceFinding finding) {
    const auto verdicts = judge(use, {.mfu = 0.1});
    return std::any_of(verdicts.begin(), verdicts.end(),
                       [&](const auto& v) { return v.finding == finding && v.is_for_the_log; });
  };
  EXPECT_FALSE(in_log(gpu(0.99), busy));
  EXPECT_FALSE(in_log(gpu(0.99), busy_but_slow));
  EXPECT_FALSE(in_log(gpu(0.99, 0.1), memory_unused));
  EXPECT_FALSE(in_log(cpu(0.5), idle)) << "a small model";
  EXPECT_TRUE(in_log(gpu(0.5), idle));
  EXPECT_TRUE(in_log(cpu(0.5, 1.4), others));
  EXPECT_TRUE(in_log(cpu(1.9, 0, 0.99), memory_full));
}

TEST(DeviceUse, ProcessesThatShareAMachineAreOneOfIt) {
  const auto process = [](double busy, double others) {
    return DeviceUse{.cores = 4, .threads = 2, .cores_busy = busy, .cores_others = others, .data_wait = busy / 10};
  };
  const auto devices = devices_of({process(1.5, 2.25), process(1, 2.75), process(2, 0.5), process(0.75, 1.75)}, 2);
  EXPECT_EQ(devices, (std::vector<DeviceUse>{
                         {.cores = 4, .threads = 4, .cores_busy = 2.5, .cores_others = 1.25, .data_wait = 0.15},
                         {.cores = 4, .threads = 4, .cores_busy = 2.75, .cores_others = 0, .data_wait = 0.2}}));
  EXPECT_EQ(devices_of({gpu(0.5), gpu(0.75)}, 2).size(), 2u);
  DeviceUse silent = process(1, 1);
  silent.cores_busy.reset();
  EXPECT_FALSE(devices_of({process(1, 1), silent}, 2)[0].cores_busy);
  EXPECT_FALSE(devices_of({process(1, 1), silent}, 2)[0].cores_others);
}

TEST(DeviceVerdict, OfSeveralDevicesEachFindingIsToldOnceWithTheLeastBusy) {
  DeviceUse hot = gpu(0.97);
  hot.slowed_by_heat = 0.5;
  const auto verdicts = judge(std::vector{gpu(0.99), hot, gpu(0.5)});
  std::vector<std::string> texts;
  for (const DeviceVerdict& verdict : verdicts) texts.push_back(verdict.text.substr(0, 29));
  EXPECT_EQ(texts, (std::vector<std::string>{"GPU 2: The GPU is busy 50 % o", "GPU 2: The GPU has nothing to",
                                             "GPU 1: The GPU is slowed 50 %"}));
}

TEST(DeviceUse, ReadsAsALine) {
  EXPECT_EQ(to_text(DeviceUse()), "");
  EXPECT_EQ(to_text(cpu(1.93, 0.048)), "1.9 of 2 cores busy, other programs 0.05, memory 4.00 GB of 8.00 GB");
  DeviceUse use = gpu(0.97, 0.5);
  use.power_w = 312, use.temperature_c = 71, use.clock_mhz = 1755, use.max_clock_mhz = 1980, use.data_wait = 0.05;
  EXPECT_EQ(to_text(use), "busy 97 %, memory 40.0 GB of 80.0 GB, 312 W, 71 °C, 1755 of 1980 MHz, waiting for data 5 %");
}

}  // namespace
}  // namespace gpt::report
