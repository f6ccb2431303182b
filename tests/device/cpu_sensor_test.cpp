// The readings of a CPU, from texts of /proc.
#include "gpt/device/cpu_sensor.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt::device {
namespace {

constexpr char kBefore[] =
    "cpu  3000 300 600 9000 50 10 40 20 0 0\n"
    "cpu0 1000 100 200 3000 20 5 15 10 0 0\n"
    "cpu1 1000 100 200 3000 20 5 15 10 700 0\n"
    "cpu10 1000 100 200 3000 10 0 10 0 0 0\n"
    "intr 20809129 0 0\n";
constexpr char kLater[] =
    "cpu  3000 300 600 9000 50 10 40 20 0 0\n"
    "cpu0 1400 110 230 3500 70 10 25 60 0 0\n"
    "cpu1 1500 100 250 3400 20 5 15 10 900 0\n"
    "cpu10 1000 100 200 3900 10 0 10 0 0 0\n"
    "intr 20809129 0 0\n";

TEST(ProcessorTimes, AreThoseOfTheProcessorsThatCount) {
  const auto both = processor_times(kBefore, {0, 1}, 100);
  ASSERT_TRUE(both);
  EXPECT_DOUBLE_EQ(both->busy, 26.4);  // of processor 0: 10 + 1 + 2 + 0.05 + 0.15
  EXPECT_DOUBLE_EQ(both->stolen, 0.2);
  EXPECT_DOUBLE_EQ(processor_times(kBefore, {10}, 100)->busy, 13.1);
  EXPECT_DOUBLE_EQ(processor_times(kBefore, {10}, 1000)->busy, 1.31);
}

TEST(ProcessorTimes, AreUnknownWhereAProcessorIsMissingOrALineMakesNoSense) {
  EXPECT_FALSE(processor_times(kBefore, {0, 2}, 100));
  EXPECT_FALSE(processor_times("", {0}, 100));
  EXPECT_FALSE(processor_times("", {}, 100));
  EXPECT_FALSE(processor_times("cpu0 1 2 3", {0}, 100));
  EXPECT_FALSE(processor_times("cpu0 1 2 x 4 5 6 7 8", {0}, 100));
  EXPECT_FALSE(processor_times("cpu 1 2 3 4 5 6 7 8", {0}, 100));
}

struct Played {
  std::string proc_stat = kBefore;
  double seconds = 50, own_seconds = 20;
  CpuSensor::Senses senses() {
    return {.proc_stat = [this] { return proc_stat; },
            .seconds = [this] { return seconds; },
            .own_seconds = [this] { return own_seconds; },
            .memory = [] { return CpuSensor::Senses::Memory{8'000'000'000, 3'000'000'000}; }};
  }
  // A reading of ten seconds, in which the processors were busy for 10.05 and stolen for 0.5.
  report::DeviceUse read(CpuSensor::Machine machine, double own) {
    CpuSensor sensor(std::move(machine), senses());
    sensor.begin();
    proc_stat = kLater, seconds += 10, own_seconds += own;
    return sensor.read();
  }
};

TEST(CpuSensor, TellsThisRunFromOtherProgramsAndTheHost) {
  const report::DeviceUse use = Played().read({.processors = {0, 1}, .usable = 2, .threads = 2}, 7);
  EXPECT_EQ(use.cores, 2);
  EXPECT_EQ(use.threads, 2);
  EXPECT_DOUBLE_EQ(*use.cores_busy, 0.7);
  EXPECT_NEAR(*use.cores_others, 0.305, 1e-12);
  EXPECT_DOUBLE_EQ(*use.cores_stolen, 0.05);
  EXPECT_DOUBLE_EQ(*use.memory_used_mb, 5000);
  EXPECT_DOUBLE_EQ(*use.memory_mb, 8000);
  EXPECT_FALSE(use.utilization);
}

TEST(CpuSensor, ClocksThatDisagreeALittleLeaveNothingToOthers) {
  EXPECT_EQ(Played().read({.processors = {0, 1}, .usable = 2, .threads = 2}, 10.07).cores_others, 0);
}

TEST(CpuSensor, SaysNothingOfOthersWhereItCannotTellThem) {
  const auto others = [](const CpuSensor::Machine& machine) { return Played().read(machine, 7).cores_others; };
  EXPECT_FALSE(others({.processors = {0, 1}, .usable = 1, .threads = 1})) << "a quota";
  EXPECT_FALSE(others({.processors = {0, 3}, .usable = 2, .threads = 2}));
  EXPECT_DOUBLE_EQ(*Played().read({.processors = {0, 3}, .usable = 2, .threads = 2}, 7).cores_busy, 0.7);
}

TEST(CpuSensor, EachReadingBeginsAnInterval) {
  Played played;
  CpuSensor sensor({.processors = {0, 1}, .usable = 2, .threads = 2}, played.senses());
  sensor.begin();
  played.seconds += 10, played.own_seconds += 7, played.proc_stat = kLater;
  (void)sensor.read();
  played.seconds += 4, played.own_seconds += 4;
  EXPECT_DOUBLE_EQ(*sensor.read().cores_busy, 1);
}

TEST(CpuSensor, ThisMachineAnswers) {
  const CpuSensor::Senses senses = CpuSensor::of_this_machine();
  EXPECT_GT(senses.seconds(), 0);
  EXPECT_GT(senses.own_seconds(), 0);
  EXPECT_GT(senses.memory().bytes, 0);
  EXPECT_LE(senses.memory().free, senses.memory().bytes);
  const std::string text = senses.proc_stat();
  EXPECT_TRUE(text.empty() || text.starts_with("cpu ")) << text;
  EXPECT_EQ(text.find("intr"), std::string::npos);
}

}  // namespace
}  // namespace gpt::device
