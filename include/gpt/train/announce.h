// The first lines of a run: what it really runs on and with, and, where that is not the best available, why.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/config/load.h"
#include "gpt/data/corpus.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/model/gpt.h"
#include "gpt/run/plan.h"

namespace gpt {

// "NVIDIA H200, 150.8 GB (compute capability 9.0)", or of a CPU with the number of threads that compute.
std::string to_text(const DeviceInfo& device);
// `has_gpu`: the machine has one, so that there is something to explain where the CPU was chosen.
void announce_device(const DeviceInfo& device, const DeviceChoice& choice, bool has_gpu);
// As choose_again_if_missing(), and says what changes.
void adapt_dtype(PrecisionConfig& kept, const PrecisionConfig& asked, const DeviceInfo& device);
void announce_methods(const Config& config, const Precision& precision, const DeviceInfo& device);
void announce_run(const Config& config, const GPT& model, const Corpus& corpus, const run::Plan& plan, bool resident);

// Each stage of data.stages: steps, lengths, batches, and how often it reads each of its files.
std::vector<std::string> describe_stages(const Config& config, const Corpus& corpus);

// Settings that were set explicitly and have no effect here, and why.
void announce_idle_settings(const Config& config, const config::Origins& origins, const DeviceInfo& device,
                            const Precision& precision, bool resident);

}  // namespace gpt
