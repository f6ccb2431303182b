// The first lines of a run: what it really runs on and with, and, where that is not the best available, why.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/config/load.h"
#include "gpt/data/corpus.h"
#include "gpt/device/device.h"
#include "gpt/distributed/group.h"
#include "gpt/run/run.h"
#include "gpt/run/setup.h"

namespace gpt::train {

// "NVIDIA H200, 150.8 GB (compute capability 9.0)", or of a CPU with the number of threads that compute.
std::string to_text(const device::DeviceInfo& device);
// `has_gpu`: the machine has one, so that there is something to explain where the CPU was chosen.
void announce_device(const device::DeviceInfo& device, const device::DeviceChoice& choice, bool has_gpu);
// What was chosen, with the reasons.
void announce_methods(const run::Setup& setup);
void announce_run(const run::Run& run);
// Who has started the processes, where there are several, and where they meet. `asked`: what the configuration says of them.
void announce_processes(const distributed::Group& group, at::Device device, const DistributedConfig& asked);

// Each stage of data.stages: steps, lengths, batches, and how often it reads each of its files.
std::vector<std::string> describe_stages(const DataConfig& data, const UpdateConfig& update,
                                         const data::Corpus& corpus);

// Settings that were set explicitly and have no effect here, and why.
void announce_idle_settings(const run::Setup& setup, bool resident, const config::Origins& origins);

}  // namespace gpt::train
