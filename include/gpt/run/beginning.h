// What a run begins with: the checkpoint that it goes on from, the weights of another run, or nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/run/folder.h"
#include "gpt/run/initial_weights.h"

namespace gpt::run {

struct Beginning {
  std::optional<StartingPoint> start;
  std::optional<InitialWeights> initial;             // the weights of a new run
  InTheWay in_the_way = {};                          // of files in the run's folder, until it begins
  std::vector<checkpoint::Decision> decisions = {};  // that the run has still to take (run/decisions.h)
  // With training.max_time: the length that the run is laid out for, where it has none yet (run/find_length.h), and whether it keeps to the
  // clock, unless it repeats what another run has decided.
  std::optional<int64_t> total_steps = {};
  bool keeps_time = true;

  // The same for a run that takes the initial weights with it: their memory is free as soon as it has copied them.
  Beginning take_tensors();
  // Lets go of the weights, once the run has copied them, or could not. Where they came from stays.
  void release_tensors();
};

// In the run's folder, or where training.init_from says. `restart`: what the folder holds is in the way, though a run may begin with
// weights that lie there. Nothing is changed. Throws gpt::Error(checkpoint) as Folder::find_start() and read_initial_weights() do.
Beginning find_beginning(const Folder& folder, const Config& config, const config::Origins& origins, bool restart);

// The data of a run, and its configuration with the choices that it made when it began and with the vocabulary that the data have.
struct RunData {
  Config config;
  data::Corpus corpus;
  std::vector<std::string> changes = {};  // since the checkpoint, where the run goes on from one
};

// In the ids of the tokenizer that the run begins with, if it begins with one, or of the one that it asks for, which initial weights are
// then brought to. Text is prepared. Throws gpt::Error: config, data;
// checkpoint where the run would be another one than that of its checkpoint.
RunData load_data(const Config& asked, const config::Origins& origins, Beginning& begins);

}  // namespace gpt::run
