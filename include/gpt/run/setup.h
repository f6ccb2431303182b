// What a run computes on and with, once its data have been read.
#pragma once

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"

namespace gpt::run {

struct Setup {
  Config config;  // the effective one
  Corpus corpus;
  DeviceInfo device;
  Precision precision;
};

// Sets the process's allocators and arithmetic as the configuration says, and says on what it runs. `asked`: the precision of the
// command line, where the configuration may have that of a checkpoint, which this device need not have.
Setup prepare_run(Config config, Corpus corpus, const DeviceChoice& choice, const PrecisionConfig& asked);

}  // namespace gpt::run
