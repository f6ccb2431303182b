// `gpt-bench scaling`: how fast a run would be on many devices. All but the step of one device is simulated (plan/scaling.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/findings.h"
#include "gpt/bench/rung.h"
#include "gpt/config/load.h"
#include "gpt/config/option.h"
#include "gpt/plan/scaling.h"

namespace gpt::bench {

struct ScalingOptions {
  std::string gpu;  // a card that is not here; empty: the device of this machine
  std::string devices = "1,8,64,512,4096";
  std::optional<int64_t> devices_per_machine;  // 8 GPUs, or one process on a CPU
  std::optional<double> link;                  // Gbit/s of a machine
  double latency = 14;                         // microseconds of a message between machines
  std::optional<double> seconds_per_step;      // that one device computes
  bool fixed_batch = false;
  std::optional<int64_t> zero, tensor_parallel, pipeline_parallel;  // where the configuration names them
};
std::vector<config::Option> options(ScalingOptions& scaling);

// Takes what the command says of `distributed` into the options. Throws gpt::Error(config) where options contradict each other.
void complete_scaling(ScalingOptions& scaling, const config::CommandLine& command);

// The numbers of devices, in the order in which they were given. Throws gpt::Error(config).
std::vector<int64_t> numbers_of_devices(const ScalingOptions& scaling);

struct Scaling {
  plan::Scenario scenario;
  std::string computing;  // where the time of a step of one device is known from
  plan::MeshPlan one;     // what others are compared with
  struct Row {
    int64_t devices;
    std::optional<plan::MeshPlan> plan;  // nothing: none fits
  };
  std::vector<Row> rows;
  bool is_elsewhere = false;  // on a card that is not here: nothing was measured

  // Tokens/s of each device beside those of one alone.
  double efficiency(const plan::MeshPlan& plan) const;
};

// Steps are timed here for some seconds, unless a card or their time is named. Throws gpt::Error.
Scaling simulate_scaling(const Wanted& wanted, const ScalingOptions& options);

Findings findings(const Scaling& scaling);

}  // namespace gpt::bench
