// From what the user asked for to what the run is, once: vocabulary, dtype and batch have been chosen in the result, with their reasons.
// The sizes of a model are chosen before, while the command line is read (run/automatic_sizes.h); whether its operators work, when the
// run is in memory (run/run.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "gpt/distributed/group.h"
#include "gpt/plan/batch_choice.h"
#include "gpt/run/beginning.h"
#include "gpt/run/setup.h"

namespace gpt::plan {

// distributed.processes; auto: one for each GPU, where the device may be one, otherwise one.
int64_t count_processes(const Config& config);

// Chooses what is left to choose once vocabulary and precision are known: the micro-batch, of which what was chosen is returned, the swapped
// layers and the workers. `fits` as choose_batch_size() has it. divide_update() comes next.
std::optional<BatchChoice> choose(Config& config, const Means& means, const std::function<bool()>& fits = {});

// Where the batch has been chosen: `processes` compute the update, in micro-batches that can be dealt out to them.
void divide_update(Config& config, int64_t processes);

// Sets the process's allocators and arithmetic. On a GPU steps are tried for batch_size: auto. `asked`: the precision of the command line.
// `group`: the processes of the run, among which each update is divided; it must outlive the setup. Throws gpt::Error(config) where data or
// device contradict the configuration.
run::Setup resolve(run::RunData data, at::Device device, const PrecisionConfig& asked, const distributed::Group& group);
// At another process than the first, which has resolved the configuration for all: `resolved`. `corpus`: what it finds here.
run::Setup resolve_like_first(run::RunData resolved, at::Device device, const PrecisionConfig& asked,
                              const distributed::Group& group);

// A run that is measured or tried: it has no folder, and no steps are tried for it.
run::Setup resolve(Config asked);

}  // namespace gpt::plan
