// One run for each combination of some settings' values, one after the other, each by gpt-train itself in a folder of its own, and a table
// of what came of them. The same command goes on where it was stopped, since each run does.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/train/train_command.h"

namespace gpt::train {

using Combination = std::vector<std::pair<std::string, std::string>>;  // keys and their values

// All combinations of values such as "learning_rate=1e-3,3e-3" and "n_layer=2,4": the last key changes fastest. Throws gpt::Error(config)
// where one is written otherwise.
std::vector<Combination> combinations_of(const std::vector<std::string>& values);

// Reads the command line of one run; throws gpt::Error(config) for a wrong one.
using ReadCommandLine = std::function<config::CommandLine(const std::vector<std::string>& arguments)>;

// For options.sweep, in folders within that of the command. With options.stops_poor_runs all of them come to where they are judged first, and
// those that are not poor go on from there. The table goes to standard output, or options.json, and as JSON to options.result.
// Returns how it ended: stopped by a signal, by a fault that all runs share, or ok. A run that diverges or lacks memory has a line in the
// table that says so. Throws gpt::Error: config before the first run, disk where a result cannot be written.
ExitCode run_sweep(const config::CommandLine& command, const TrainOptions& options, const ReadCommandLine& read);

}  // namespace gpt::train
