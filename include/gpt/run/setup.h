// What a run computes on and with: its configuration, its data, its device and its precision.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/distributed/communicator.h"

namespace gpt::run {

class Teacher;

struct Setup {
  Config config;  // the effective one: vocabulary, batch and dtype are set
  data::Corpus corpus;
  device::DeviceInfo device;
  device::Precision precision;
  std::string dtype_change = {};                    // what changes where the dtype of a checkpoint is missing here
  std::string batch_reason = {};                    // what was chosen where batch_size was auto
  distributed::Mesh mesh = distributed::no_mesh();  // the processes that compute it together
  std::shared_ptr<Teacher> teacher =
      {};                       // read already, for several runs; else each one reads that of its configuration
  int64_t local_processes = 1;  // those of this machine, among which its memory is divided
};

// Finds out vocabulary and precision, and sets the process's allocators and arithmetic as the configuration says; what is left to choose
// is plan/resolve.h's. `asked`: the precision of the command line, where the configuration may have that of a checkpoint, which this
// device need not have. Throws gpt::Error(config) where data or device contradict the configuration.
Setup set_up(Config config, data::Corpus corpus, at::Device device, const PrecisionConfig& asked);

// What the rules of config/rules.h may know of the run, but for where its tokens are.
config::Facts facts_of(const Setup& setup);

// The same with batches of the whole text in any order: for trials, to which it does not matter which batches they are, while stages and
// another order take reading the text.
Setup for_trial(Setup setup);

}  // namespace gpt::run
