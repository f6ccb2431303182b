// How a run would scale to many devices: for so many of them the arrangement that computes most tokens a second, of those that fit into
// memory, and what limits it. All of it is arithmetic (step_schedule.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/model_checks.h"
#include "gpt/plan/step_schedule.h"

namespace gpt::plan {

// What is asked about, the same for every number of devices.
struct Scenario {
  // What one device runs: batch_size (0: as large as fits) in each of the micro-batches of an update. `model.vocab_size` must be set.
  Config config;
  device::DeviceInfo device;
  device::Precision precision;
  std::string attention;  // as attention_path() names it
  MemoryBudget memory;    // of a device
  Network network;        // its machines may have more devices than are asked about
  // What a device computes of a micro-batch of this configuration, with its share of the model.
  std::function<StepParts(const Config& config, const ActivationForm& form)> compute;
  bool keeps_batch =
      false;  // an update has the sequences of `config`, however many devices there are; otherwise that many each
  std::optional<int64_t> zero = {}, tensor_parallel = {}, pipeline_parallel = {};  // where they are not chosen

  int64_t sequences() const;  // of an update of `config`
};

// So many devices as a configuration arranges them.
struct MeshPlan {
  Config config;      // with processes, what divides the model, zero, and the batch divided among them
  double memory = 0;  // bytes that each device needs
  bool fits = false;
  MeshTime time;
  std::string limit;  // what costs most: "computing", "the latency of messages (12 %)"

  int64_t devices() const { return config.distributed.processes; }
  int64_t tokens() const;  // of an update
  double tokens_per_second() const { return static_cast<double>(tokens()) / time.seconds(); }
};

// The fastest that fits, in the largest micro-batches that do; of those that are as fast within 5 %, the one that divides least. On one
// device what does not fit is computed all the same, for others to be compared with. Nothing where no arrangement fits, or an update has
// too few sequences.
std::optional<MeshPlan> fastest_mesh(const Scenario& scenario, int64_t devices);

// The plan of the processes as `config` arranges them, whether or not it fits.
MeshPlan plan_mesh(const Scenario& scenario, const Config& config);

}  // namespace gpt::plan
