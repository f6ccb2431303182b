// The readings of a GPU, from a stand-in for NVML (stand_in_nvml.cpp).
#include "gpt/device/nvml_sensor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/scratch_folder.h"

namespace gpt::device {
namespace {

constexpr char kDevice[] = "device GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf6 00000000:65:00.0\nnvmlInit_v2 0\n";
const GpuAddress kAddress{"f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "00000000:65:00.0"};

class NvmlSensor : public testing::Test {
 protected:
  ~NvmlSensor() override { unsetenv("GPT_STAND_IN_NVML"); }

  void say(const std::string& lines) {
    setenv("GPT_STAND_IN_NVML", folder_.file("values", kDevice + lines).c_str(), /*overwrite=*/1);
  }
  // What the first reading after begin() says.
  report::DeviceUse read(const std::string& lines, const GpuAddress& gpu = kAddress) {
    say(lines);
    const FoundSensor found = find_nvml_sensor(gpu, GPT_STAND_IN_NVML);
    if (!found.sensor) return ADD_FAILURE() << found.reason, report::DeviceUse();
    found.sensor->begin();
    return found.sensor->read();
  }

  const ScratchFolder folder_;
};

TEST_F(NvmlSensor, SaysWhatItIsAsked) {
  const report::DeviceUse use = read(
      "nvmlDeviceGetUtilizationRates 0 97\nnvmlDeviceGetMemoryInfo 0 80000000000 60000000000\n"
      "nvmlDeviceGetPowerUsage 0 312500\nnvmlDeviceGetEnforcedPowerLimit 0 350000\nnvmlDeviceGetTemperature 0 71\n"
      "nvmlDeviceGetClockInfo 0 1755\nnvmlDeviceGetMaxClockInfo 0 1980\n"
      "nvmlDeviceGetCurrentClocksThrottleReasons 0 5\n");
  EXPECT_EQ(use, (report::DeviceUse{.utilization = 0.97,
                                    .power_w = 312.5,
                                    .power_limit_w = 350,
                                    .temperature_c = 71,
                                    .clock_mhz = 1755,
                                    .max_clock_mhz = 1980,
                                    .slowed_by_power = 1,
                                    .slowed_by_heat = 0,
                                    .slowed_by_hardware = 0,
                                    .slowed_by_setting = 0,
                                    .memory_used_mb = 60000,
                                    .memory_mb = 80000}));
}

TEST_F(NvmlSensor, EachReasonHasItsWord) {
  const auto reasons = [&](int bits) {
    return read("nvmlDeviceGetCurrentClocksThrottleReasons 0 " + std::to_string(bits) + "\n");
  };
  EXPECT_EQ(
      reasons(0x1),
      (report::DeviceUse{.slowed_by_power = 0, .slowed_by_heat = 0, .slowed_by_hardware = 0, .slowed_by_setting = 0}))
      << "it is idle";
  EXPECT_EQ(reasons(0x2).slowed_by_setting, 1);
  EXPECT_EQ(reasons(0x100).slowed_by_setting, 1);
  EXPECT_EQ(reasons(0x4).slowed_by_power, 1);
  EXPECT_EQ(reasons(0x20).slowed_by_heat, 1);
  for (const int hardware : {0x8, 0x40, 0x80}) EXPECT_EQ(reasons(hardware).slowed_by_hardware, 1) << hardware;
}

TEST_F(NvmlSensor, UtilizationIsTheMeanOfTheSamplesSinceTheLastReading) {
  say("nvmlDeviceGetUtilizationRates 0 3\nnvmlDeviceGetSamples 0 1000 10 2000 20\n");
  const FoundSensor found = find_nvml_sensor(kAddress, GPT_STAND_IN_NVML);
  ASSERT_TRUE(found.sensor) << found.reason;
  found.sensor->begin();
  say("nvmlDeviceGetUtilizationRates 0 3\nnvmlDeviceGetSamples 0 1000 10 2000 20 3000 90 4000 100\n");
  EXPECT_DOUBLE_EQ(*found.sensor->read().utilization, 0.95);
  EXPECT_DOUBLE_EQ(*found.sensor->read().utilization, 0.03) << "no new sample";
}

TEST_F(NvmlSensor, CountersAreSharesOfTheTimeThatHasPassed) {
  const auto counters = [&](const std::string& energy, const std::string& violations) {
    say("nvmlDeviceGetPowerUsage 0 1000\nnvmlDeviceGetCurrentClocksThrottleReasons 0 36\nnvmlDeviceGetTotalEnergyConsumption 0 " +
        energy + "\nnvmlDeviceGetViolationStatus 0 " + violations + "\n");
  };
  counters("5000", "7000 0");
  const FoundSensor found = find_nvml_sensor(kAddress, GPT_STAND_IN_NVML);
  ASSERT_TRUE(found.sensor) << found.reason;
  found.sensor->begin();
  counters("5000", "3600000000007000 0");  // more than any time that the test may take
  const report::DeviceUse use = found.sensor->read();
  EXPECT_EQ(use.power_w, 0) << "the counter stood still, whatever the power is now";
  EXPECT_EQ(use.slowed_by_power, 1);
  EXPECT_EQ(use.slowed_by_heat, 0) << "the counter says so, whatever the reason is now";
}

TEST_F(NvmlSensor, WhatFailsIsLeftOut) {
  EXPECT_EQ(read(""), report::DeviceUse());
  EXPECT_EQ(read("nvmlDeviceGetUtilizationRates 15\nnvmlDeviceGetMemoryInfo 999\nnvmlDeviceGetTemperature 0 60\n"),
            report::DeviceUse{.temperature_c = 60});
}

TEST_F(NvmlSensor, FindsTheGpuByItsIdentityAndOtherwiseByItsPlace) {
  EXPECT_EQ(read("nvmlDeviceGetTemperature 0 60\n", {"another", "00000000:65:00.0"}).temperature_c, 60);
  EXPECT_EQ(read("nvmlDeviceGetTemperature 0 60\n", {kAddress.uuid, "00000000:66:00.0"}).temperature_c, 60);
  say("");
  EXPECT_EQ(find_nvml_sensor({"another", "00000000:66:00.0"}, GPT_STAND_IN_NVML).reason,
            "it does not know the GPU at 00000000:66:00.0: Some Error");
}

TEST_F(NvmlSensor, AMissingOldOrUnwillingLibrarySaysSo) {
  EXPECT_EQ(find_nvml_sensor(kAddress, "libno-such-nvml.so.1").reason,
            "libno-such-nvml.so.1, which comes with NVIDIA's driver, is not there");
  say("");
  EXPECT_EQ(find_nvml_sensor(kAddress, GPT_OLD_STAND_IN_NVML).reason,
            std::string(GPT_OLD_STAND_IN_NVML) + " is too old: it has no nvmlDeviceGetHandleByPciBusId_v2");
  setenv("GPT_STAND_IN_NVML", folder_.file("values", "nvmlInit_v2 9\n").c_str(), /*overwrite=*/1);
  EXPECT_EQ(find_nvml_sensor(kAddress, GPT_STAND_IN_NVML).reason,
            std::string(GPT_STAND_IN_NVML) + " does not start: Driver Not Loaded");
}

}  // namespace
}  // namespace gpt::device
