#include "gpt/bench/modes.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "gpt/core/error.h"

namespace gpt::bench {
namespace {

device::DeviceInfo gpu() {
  device::DeviceInfo info;
  info.device = at::Device(at::kCUDA, 0);
  return info;
}

// Takes 100 ms for LibTorch's operators, 50 with ours, 25 recorded.
struct ModesMachine {
  int64_t stop_after = 1000;
  std::vector<std::string> measured;

  std::optional<Measurement> operator()(const Config& config, const MeasurementLength& length) {
    if (std::ssize(measured) >= stop_after) return std::nullopt;
    const ExecutionConfig& execution = config.training.execution;
    const bool is_recorded = execution.compile_mode != CompileMode::standard;
    measured.emplace_back(!execution.use_compile ? "eager" : is_recorded ? "recorded" : "default");
    updates = length.updates;
    if (execution.compile_mode == CompileMode::max_autotune) throw Error(ExitCode::memory, "too large");
    const double step_ms = !execution.use_compile ? 100 : is_recorded ? 25 : 50;
    return Measurement{
        .step_ms = step_ms, .tokens_per_second = 1e6 / step_ms, .peak_bytes = 1'000'000, .threads = 3, .loss = 4.0};
  }
  int64_t updates = 0;
};

Modes compare_modes_on(ModesMachine& machine, const device::DeviceInfo& device, const ModesEffort& effort) {
  return measure_modes(Config(), device, effort, std::ref(machine), [](double share, const std::string&) {
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
  });
}

TEST(Modes, OnACpuEveryModeIsDefault) {
  ModesMachine machine;
  const Modes modes = compare_modes_on(machine, device::DeviceInfo(), {.epochs = 3, .iterations = 7});
  EXPECT_TRUE(modes.complete);
  EXPECT_EQ(machine.measured, (std::vector<std::string>{"eager", "default", "eager", "default", "eager", "default"}));
  EXPECT_EQ(machine.updates, 7);
  ASSERT_EQ(modes.rows.size(), 4u);
  EXPECT_EQ(modes.rows[1].gain, 2);
  EXPECT_EQ(modes.rows[1].verdict, "faster");
  for (const size_t i : {2, 3}) {
    EXPECT_FALSE(modes.rows[i].measurement);
    EXPECT_EQ(modes.rows[i].verdict, "on a CPU every mode is default");
  }
}

TEST(Modes, OnAGpuEachIsMeasuredInTurnAndOneThatFailsIsNoLoss) {
  ModesMachine machine;
  const Modes modes = compare_modes_on(machine, gpu(), {.epochs = 2, .iterations = 1});
  EXPECT_TRUE(modes.complete);
  EXPECT_EQ(modes.rows[2].gain, 4);
  EXPECT_FALSE(modes.rows[3].measurement);
  EXPECT_EQ(modes.rows[3].verdict, "too large");
  const std::vector<std::string> second(machine.measured.begin() + 4, machine.measured.end());
  EXPECT_EQ(second, (std::vector<std::string>{"eager", "default", "recorded"}));  // it is not tried again
}

TEST(Modes, ASignalKeepsWhatWasMeasured) {
  ModesMachine machine;
  machine.stop_after = 5;
  const Modes modes = compare_modes_on(machine, gpu(), {.epochs = 5, .iterations = 1});
  EXPECT_FALSE(modes.complete);
  EXPECT_EQ(modes.epochs, 1);
  EXPECT_EQ(modes.rows[2].gain, 4);
  EXPECT_NE(to_markdown(findings(modes).text).find("1 epoch and part of another:"), std::string::npos);
}

TEST(Modes, ASignalInTheFirstEpochKeepsItsRows) {
  for (const int64_t measured : {0, 1, 2}) {
    ModesMachine machine;
    machine.stop_after = measured;
    const Modes modes = compare_modes_on(machine, gpu(), {.epochs = 5, .iterations = 1});
    EXPECT_EQ(modes.epochs, 0);
    for (size_t i = 0; i < modes.rows.size(); ++i)
      EXPECT_EQ(modes.rows[i].measurement.has_value(), static_cast<int64_t>(i) < measured);
  }
}

TEST(Modes, ResultsNameEveryRow) {
  ModesMachine machine;
  const Findings result = findings(compare_modes_on(machine, device::DeviceInfo(), {.epochs = 1, .seconds = 10}));
  const std::string text = to_markdown(result.text);
  for (const char* name : {"eager", "default", "reduce-overhead", "max-autotune"}) {
    EXPECT_NE(text.find(std::string("| ") + name + " "), std::string::npos) << name;
    EXPECT_NE(result.json.find(std::string("\"") + name + "\""), std::string::npos) << name;
  }
  EXPECT_EQ(result.bars.size(), 2u);
  EXPECT_EQ(result.threads, 3);
}

}  // namespace
}  // namespace gpt::bench
