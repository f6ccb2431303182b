#include "gpt/bench/rung.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "config/faults.h"
#include "gpt/core/error.h"

namespace gpt::bench {
namespace {

TEST(Rungs, ACpusLadderMeasuresLoadingTooExceptForPinnedMemory) {
  for (const Rung& rung : rungs(Config(), device::DeviceInfo())) {
    if (rung.name.starts_with("workers") || rung.name == "resident" || rung.name == "pinned") {
      EXPECT_EQ(rung.obstacle, rung.name == "pinned" ? "needs a GPU" : "") << rung.name;
    }
  }
}

// What needs the operators or the processes that a measurement leaves out goes with them.
TEST(Rungs, EveryValidRunCanBeMeasured) {
  const std::string compiled = "model: {n_layer: 8}\ntraining: {";
  for (const std::string& yaml :
       {compiled + "quantized_forward: int8}\n", compiled + "swap_activations: 2}\n",
        compiled + "gradient_checkpointing: norm}\n", compiled + "optimizer: muon, optimizer_state_dtype: int8}\n",
        compiled + "batch_size: 8}\ndistributed: {processes: 2, zero: 3}\n",
        compiled + "batch_size: 8}\ndistributed: {processes: 2, tensor_parallel: 2}\n",
        compiled + "batch_size: 8}\ndistributed: {processes: 2, pipeline_parallel: 2}\n"}) {
    const Config wanted = config::from_yaml(yaml);
    ASSERT_NO_THROW(config::validate(wanted, "wanted", {})) << yaml;
    const Config plain = measurable(wanted);
    for (const Config& measured : {plain, with_libtorchs_operators(plain).config, without_rungs(wanted).config})
      EXPECT_NO_THROW(config::validate(measured, "measured", {})) << yaml;
  }
}

TEST(Rungs, WhatContradictsThemIsSwitchedOffAndSaid) {
  const Config wanted =
      config::from_yaml("model: {n_layer: 8}\ntraining: {quantized_forward: int8, optimizer: muon}\n");
  const Adapted eager = with_libtorchs_operators(wanted), start = without_rungs(wanted);
  EXPECT_EQ(with_changes("use_compile: false", eager.also),
            "use_compile: false; and therefore training.quantized_forward: none");
  EXPECT_EQ(start.also, (std::vector<std::string>{"training.optimizer: adamw", "training.quantized_forward: none"}));
  const auto change = [](Config& config) { config.training.execution.use_compile = true; };
  EXPECT_EQ(with_changes("use_compile: true", applied(change, start.config).also), "use_compile: true");
}

TEST(Rungs, WhatWasWrittenStaysWhereAnotherKeyCanChange) {
  const Config wanted = config::from_yaml("training: {optimizer: muon}\n");
  const auto other_seed = [](Config& config) { config.seed = 2, config.distributed.zero = 3; };
  const auto also = [&](const config::Origins& written) {
    Config config = wanted;
    config.distributed.zero = 3;
    return applied([](Config& changed) { changed.seed = 2; }, config, written).also;
  };
  EXPECT_EQ(also({{"training.optimizer", "--optimizer"}}), std::vector<std::string>{"distributed.zero: 2"});
  EXPECT_EQ(also({{"distributed.zero", "--zero"}}), std::vector<std::string>{"training.optimizer: adamw"});
  EXPECT_EQ(applied(other_seed, wanted, {{"training.optimizer", "--optimizer"}}).also,
            std::vector<std::string>{"training.optimizer: adamw"})
      << "both of its keys are asked for";
}

TEST(Rungs, AGpusLadderLoadsDataInEveryWayAndEndsOnTheCpu) {
  device::DeviceInfo gpu = device::describe_gpu(at::Device(at::kCUDA, 0), "a card", 1LL << 34, 9, 0);
  Config config;
  const Config start = without_rungs(config).config;
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

TEST(Rungs, ACombinationNamesWhatEachNeedsBeforeIt) {
  const device::DeviceInfo gpu = device::describe_gpu(at::Device(at::kCUDA, 0), "a card", 1LL << 34, 9, 0);
  const std::vector<Rung> all = rungs(Config(), gpu);
  const auto fault = [&](const std::string& names) -> std::string {
    try {
      (void)named_rungs(names, all);
    } catch (const Error& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(fault("compile+adamw+graph+autotune"), "");
  EXPECT_EQ(fault("workers_2+pinned"), "");
  EXPECT_EQ(fault("workers+pinned"), "");
  EXPECT_EQ(fault("compile+graph"),
            "gpt-bench combo: graph does nothing without adamw before it: name adamw+compile+graph");
  EXPECT_EQ(fault("graph+adamw+compile"),
            "gpt-bench combo: graph does nothing without adamw and compile before it: name adamw+compile+graph");
  EXPECT_EQ(fault("autotune"),
            "gpt-bench combo: autotune does nothing without adamw, compile and graph before it: "
            "name adamw+compile+graph+autotune");
  EXPECT_EQ(fault("pinned"), "gpt-bench combo: pinned does nothing without workers before it: name workers+pinned");
  EXPECT_EQ(fault("adamw+compile+adamw"), "gpt-bench combo: adamw is named twice");
  EXPECT_EQ(named_rungs("compile+adamw", all)[1].name, "adamw");
}

}  // namespace
}  // namespace gpt::bench
