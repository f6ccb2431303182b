// What a run begins with: the checkpoint that it goes on from, the weights of another run, or nothing.
#pragma once

#include <optional>

#include "gpt/config/load.h"
#include "gpt/run/folder.h"
#include "gpt/run/initial_weights.h"

namespace gpt::run {

struct Beginning {
  std::optional<StartingPoint> start;
  std::optional<InitialWeights> initial;  // the weights of a new run

  // Once the run has copied them, or could not. Where they came from stays.
  void release_tensors();
};

// In the run's folder, or where training.init_from says. `restart`: what the folder holds is set aside, though a run may begin with
// weights that lie there. Throws gpt::Error(checkpoint) as Folder::find_start() and read_initial_weights() do.
Beginning find_beginning(const Folder& folder, const Config& config, const config::Origins& origins, bool restart);

// The tokens in the ids of the tokenizer that the run begins with, if it begins with one.
Corpus load_corpus(const Beginning& begins, const Config& config);

}  // namespace gpt::run
