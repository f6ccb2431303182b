// Runs as their folders tell of them, finished or not: their losses in one drawing, and a row for each. No checkpoint is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/report/run_history.h"

namespace gpt {

struct RunSummary {
  std::string folder;
  RunHistory history;
  std::optional<int64_t> parameters;  // nothing where the folder has no configuration that says so
};

// Throws gpt::Error(config) where a folder is not that of a run.
std::vector<RunSummary> read_runs(const std::vector<std::string>& folders);

// The curves of the training and validation losses of one run, or of one loss of several; then the table. Both fit `columns`; where
// those are 0, which is no terminal, the table has all of its own.
std::string draw_runs(const std::vector<RunSummary>& runs, int columns, bool unicode);
// {"runs": [{folder, parameters, steps, tokens, seconds, ...}]}, with null for what is not known.
std::string runs_json(const std::vector<RunSummary>& runs);

}  // namespace gpt
