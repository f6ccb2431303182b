// Runs as their folders tell of them, finished or not: their losses in one drawing, and a row for each. No checkpoint is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/report/run_history.h"

namespace gpt {

struct RunSummary {
  std::string folder;
  RunHistory history;
  std::optional<Config> config;  // the effective one, where the folder has one that can be read
  std::optional<int64_t> parameters() const;
};

// Throws gpt::Error(config) where a folder is not that of a run.
std::vector<RunSummary> read_runs(const std::vector<std::string>& folders);

// The curves of the training and validation losses of one run, or of one loss of several (where their tokenizers differ, in bits per
// byte); then the table, and the settings in which several differ. Drawing and table fit `columns`; where those are 0, which is no
// terminal, the table has all of its own.
std::string draw_runs(const std::vector<RunSummary>& runs, int columns, bool unicode);
// {"runs": [{folder, parameters, steps, tokens, seconds, ...}]}, with null for what is not known.
std::string runs_json(const std::vector<RunSummary>& runs);

}  // namespace gpt
