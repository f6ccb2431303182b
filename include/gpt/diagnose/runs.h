// Runs as their folders tell of them, finished or not: their losses in one drawing, and a row for each. No checkpoint is read.
#pragma once

#include <string>
#include <vector>

#include "gpt/board/run_groups.h"

namespace gpt::diagnose {

// Runs of these folders; of one that holds no run but several of them, those by their names. Throws gpt::Error(config) where there is none.
std::vector<board::RunSummary> read_runs(const std::vector<std::string>& folders);

// The curves of the training and validation losses of one run, or of one loss of several that read the same text (where their tokenizers
// differ, in bits per byte), each with a verdict; then the table, best first, and the settings in which several differ. Drawing and table
// fit `columns`; where those are 0, which is no terminal, the table has all of its own.
std::string draw_runs(const std::vector<board::RunSummary>& runs, int columns, bool unicode);
// {"runs": [{folder, text, state, parameters, steps, ...}], "verdicts": [...]}, with null for what is not known. Runs of one `text`, a
// number, are compared.
std::string runs_json(const std::vector<board::RunSummary>& runs);

}  // namespace gpt::diagnose
