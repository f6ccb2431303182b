// How many processors there are for this process, and how long it has used them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/core/cpu_topology.h"

namespace gpt {

// Processors to run on, as the program's first question found them: OpenMP may bind the thread that asks later to one of them.
const std::vector<Processor>& processors_to_run_on();

// How many processors to run on (taskset, a cpuset), or fewer where a control group has a quota of processor time (`docker run --cpus 2`),
// rounded up: threads beyond that only use the quota up sooner, and then all of them stand still. `root` stands for / in a test.
int64_t usable_processors(const std::string& root = "");

// The same, but hyper-threads of one core count once: two that compute at the same time share its units.
int64_t usable_cores(const std::string& root = "");

// How long the threads of this process have run so far, added up.
double processor_seconds();
double seconds_since_boot();  // by a steady clock

}  // namespace gpt
