// How long an update takes in several processes: what each computes and what it sends, in the order in which run/ does so, with what
// goes on at the same time and what is waited for.
#pragma once

#include "gpt/config/config.h"
#include "gpt/plan/network.h"

namespace gpt::plan {

// Seconds that a process computes, forward and backward for a micro-batch, and for the update of the weights.
struct StepParts {
  double micro_batch = 0, update = 0;
};

// Seconds of an update, of the process with the most micro-batches.
struct MeshTime {
  double computing = 0;
  double sending = 0;  // for which computing waits or is slower; what is sent behind it takes no time
  double seconds() const { return computing + sending; }
};

// How the operators and the recorder of a run compute it, as ActivationForm has it.
struct StepForm {
  bool end_to_end = false, is_recorded = false;
};

// `config` has the processes and all micro-batches of an update, and model.vocab_size; `parts` are those of a process's share of every
// layer, of all layers. Of stages it is the time of the slowest one, whose waiting for the others counts as computing.
MeshTime schedule_update(const UpdateConfig& config, const StepForm& form, const StepParts& parts,
                         const Network& network);

}  // namespace gpt::plan
