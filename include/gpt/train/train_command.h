// What gpt-train does with its command line.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"

namespace gpt::train {

struct TrainOptions {
  bool restart = false;                     // an older run in output_dir is set aside
  bool eval_only = false;                   // evaluate_run() in place of training
  bool find_lr = false;                     // only looks for the learning rate of a run that would begin
  bool json = false;                        // what these two find, or the run's result, is JSON on standard output
  std::string result = {};                  // the file that the run's result is written to (report/result_file.h)
  std::string replay = {};                  // a file of decisions that the run takes at their steps (run/decisions.h)
  std::string live = {};                    // where a page shows the run (train/live_page.h); empty: nowhere
  bool control = false;                     // gpt-board tell may tell the run what to do (control/inbox.h)
  std::vector<std::string> on_event = {};   // training.on_event, which nothing else sees
  std::vector<std::string> sweep = {};      // values of settings that runs have in turn (train/sweep.h)
  bool stops_poor_runs = false;             // of the sweep, after a third of their steps
  bool stops_at_third = false;              // as they do for that (report/early_loss.h)
  std::vector<std::string> arguments = {};  // of the command line, for the processes that it starts
};

// Trains until the run is done or a signal stops it, and returns the exit status: in this process, as one of several that a launcher has
// started, or in processes that it starts and watches. Throws gpt::Error: config, data, checkpoint, numerics, peer or disk. What ran out of
// memory is explained in the log.
ExitCode train(const config::CommandLine& command, const TrainOptions& options);

}  // namespace gpt::train
