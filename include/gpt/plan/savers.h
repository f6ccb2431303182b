// What would make a run need less memory: the settings that exist, each tried on the estimate.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/config/facts.h"
#include "gpt/device/device.h"
#include "gpt/plan/check.h"
#include "gpt/plan/memory_settings.h"

namespace gpt::plan {

// A run, and what it computes with; neither need be here.
struct PlacedRun {
  const Config& config;  // with model.vocab_size
  const device::DeviceInfo& device;
  std::string attention;  // the kernel's name
};

// Whether a setting contradicts nothing in a run and changes something there, as the rules have it.
bool goes_with(const MemorySetting& setting, Config config, const config::Facts& facts);

// In order of gain, each alone, and only those that gain anything. `data_bytes`: of the tokens on the device.
std::vector<Check::Saver> find_savers(const PlacedRun& run, double data_bytes);

struct FittingSettings {
  std::vector<std::string> settings;  // all of them together
  double bytes = 0;                   // what the run's tensors then need, by the estimate
  bool may_resume = false;            // a run that has begun can go on with them
};

// At most two ways to make the run fit into `room` bytes: a smaller micro-batch, and one that leaves the batch as it is. Each
// takes more savers where one is not enough. A run that is saved cannot change its batch: then the second comes first, and
// holds only what the run can resume with. Nothing where no setting is enough.
std::vector<FittingSettings> find_fitting_settings(const PlacedRun& run, double data_bytes, double room, bool is_saved);

}  // namespace gpt::plan
