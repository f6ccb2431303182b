// How a run begins in several processes: the first one finds and decides everything, and the others begin alike.
#pragma once

#include "gpt/config/load.h"
#include "gpt/distributed/group.h"
#include "gpt/run/beginning.h"
#include "gpt/run/setup.h"

namespace gpt::run {

// Throws gpt::Error(config), at the first process, which names the process and the difference where one has another build or configuration.
void require_same_command(const distributed::Group& group, const config::CommandLine& command);

// At the first process: what it has found and chosen, once the data are prepared.
void say_beginning(const distributed::Group& group, const Beginning& begins, const Setup& setup);

struct SharedBeginning {
  RunData data;  // with the resolved configuration
  Beginning begins;
};

// At the others, which wait until the data are prepared: once for each machine, by the first of its processes. Throws gpt::Error: data
// where those of this machine are others; checkpoint where it cannot read what the run begins with.
SharedBeginning hear_beginning(const distributed::Group& group, const config::CommandLine& command,
                               const Folder& folder);

}  // namespace gpt::run
