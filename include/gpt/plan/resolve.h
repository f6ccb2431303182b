// From what the user asked for to what the run is, once: every choice that a configuration leaves to the program has been made in the
// result, with its reason. Only the sizes of a model are chosen before, while the command line is read (run/automatic_sizes.h).
#pragma once

#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/run/beginning.h"
#include "gpt/run/setup.h"

namespace gpt::plan {

struct Resolution {
  run::Setup setup;
  std::vector<std::string> changes = {};  // since the checkpoint, where the run goes on from one
};

// Reads the data, preparing them where they are text, and sets the process's allocators and arithmetic. On a GPU steps are tried for
// batch_size: auto. Throws gpt::Error: config, data; checkpoint where the run would be another one than that of its checkpoint.
Resolution resolve(const Config& asked, const config::Origins& origins, at::Device device, const run::Beginning& begins);

// The same of a run that is measured or tried: it has no folder, and no steps are tried for it.
run::Setup resolve(const Config& asked);

}  // namespace gpt::plan
