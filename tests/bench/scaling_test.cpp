// What `gpt-bench scaling` is asked, and what it writes.
#include "gpt/bench/scaling.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/expect_error.h"

namespace gpt::bench {
namespace {

ScalingOptions on_h100(const std::string& devices) {
  ScalingOptions options;
  options.gpu = "H100 SXM", options.devices = devices;
  return options;
}

// A small GPT-2, whose data nobody needs.
Config gpt2_of_4_layers() {
  Config config;
  config.model.n_layer = 4, config.model.n_embd = 512, config.model.block_size = 1024;
  config.model.vocab_size = 50257, config.model.dropout = 0;
  config.training.batch_size = 16;
  return config;
}

TEST(NumbersOfDevices, AreWholeNumbersWithCommas) {
  EXPECT_EQ(numbers_of_devices({}), (std::vector<int64_t>{1, 8, 64, 512, 4096}));
  EXPECT_EQ(numbers_of_devices(on_h100("3")), std::vector<int64_t>{3});
  for (const char* wrong : {"", "8,", ",8", "8;16", "8, 16", "0", "-8", "1.5", "1000001", "99999999999999999999"})
    EXPECT_ERROR((void)numbers_of_devices(on_h100(wrong)), ExitCode::config,
                 "--devices must be whole numbers from 1 to 1,000,000 with commas between them, such as 1,8,64, got '");
}

TEST(CompleteScaling, TakesTheArrangementAndRefusesContradictions) {
  config::CommandLine command;
  command.config.distributed.zero = 2;
  ScalingOptions options = on_h100("8");
  complete_scaling(options, command);
  EXPECT_FALSE(options.zero) << "nobody has asked for it";
  command.origins["distributed.zero"] = "--zero";
  complete_scaling(options, command);
  EXPECT_EQ(options.zero, 2);
  EXPECT_FALSE(options.tensor_parallel);
  ScalingOptions timed = options;
  timed.seconds_per_step = 1;
  EXPECT_ERROR(complete_scaling(timed, command), ExitCode::config, "give one of them");
  ScalingOptions unknown = options;
  unknown.gpu = "RTX 4085";
  EXPECT_ERROR(complete_scaling(unknown, command), ExitCode::config, "the nearest are RTX 4080");
  command.origins["device"] = "config.yaml:3";
  complete_scaling(options, command);
  command.origins["device"] = "--device";
  EXPECT_ERROR(complete_scaling(options, command), ExitCode::config, "--device about this one");
  command.origins.erase("device");
  command.origins["distributed.processes"] = "config.yaml:9";
  complete_scaling(options, command);
  command.origins["distributed.processes"] = "--processes";
  EXPECT_ERROR(complete_scaling(options, command), ExitCode::config, "--devices says how many there are");
}

TEST(SimulateScaling, ComparesDevicesWithOne) {
  const Scaling scaling = simulate_scaling(gpt2_of_4_layers(), on_h100("8,1,64"));
  ASSERT_EQ(scaling.rows.size(), 3);
  EXPECT_EQ(scaling.efficiency(*scaling.rows[1].plan), 1);
  const plan::MeshPlan &eight = *scaling.rows[0].plan, &many = *scaling.rows[2].plan;
  EXPECT_DOUBLE_EQ(scaling.efficiency(eight), eight.tokens_per_second() / 8 / scaling.one.tokens_per_second());
  EXPECT_LT(scaling.efficiency(many), scaling.efficiency(eight));
  EXPECT_EQ(scaling.scenario.network.between.bytes_per_second, 0.95 * 8 * 400e9 / 8);
}

TEST(SimulateScaling, FollowsTheNetworkThatIsNamed) {
  ScalingOptions slow = on_h100("64");
  slow.link = 10, slow.latency = 100, slow.devices_per_machine = 4;
  const Scaling scaling = simulate_scaling(gpt2_of_4_layers(), slow);
  EXPECT_EQ(scaling.scenario.network.of_machine, 4);
  EXPECT_EQ(scaling.scenario.network.between.bytes_per_second, 0.95 * 10e9 / 8);
  EXPECT_DOUBLE_EQ(scaling.scenario.network.between.latency, 100e-6);
  EXPECT_TRUE(scaling.rows[0].plan->limit.starts_with("bytes between machines")) << scaling.rows[0].plan->limit;
}

TEST(FindingsOfScaling, SayThatNothingWasMeasured) {
  ScalingOptions options = on_h100("1,8,4096");
  options.fixed_batch = true;
  const Findings result = findings(simulate_scaling(gpt2_of_4_layers(), options));
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.threads, 0);
  const std::string text = to_markdown(result.text);
  EXPECT_NE(text.find("Simulated, not measured"), std::string::npos);
  EXPECT_NE(text.find("An update has 16 sequences with any number of devices (strong scaling)."), std::string::npos);
  EXPECT_NE(text.find("270 GB/s, and a message takes 3.4 us (computed, not measured"), std::string::npos);
  EXPECT_NE(text.find("none fits into memory, or too few sequences"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(result.json);
  EXPECT_EQ(json["simulated"], true);
  EXPECT_EQ(json["rows"][1]["devices"], 8);
  EXPECT_EQ(json["rows"][1]["tokens"], 16 * 1024);
  EXPECT_EQ(json["rows"][2]["fits"], false);
  EXPECT_EQ(result.bars.size(), 2);
}

}  // namespace
}  // namespace gpt::bench
