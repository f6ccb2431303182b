// A run that resumes: whether its configuration and data are still those of its checkpoint. gpt-train checks before it
// resumes, gpt-diagnose beforehand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/run/folder.h"

namespace gpt::run {

// The changes since the checkpoint that are safe ("key: old -> new"). Throws gpt::Error(checkpoint) naming those that would make
// it another run, and a folder that is free for a new one.
std::vector<std::string> require_same_configuration(const StartingPoint& start, const Config& now);

// For a run that goes on: one that is finished already applies none of them.
void announce_changes(const std::vector<std::string>& changes);

// Requires what config::require_data() does. Where the folder of the run, or that of the checkpoint to resume from, holds a configuration,
// the message names it: with that the run continues.
void require_run_data(const Config& config, const std::string& origin);

// config.data, with prepared text kept in output_dir where the user's cache cannot be written.
DataConfig data_with_cache(const Config& config);

// The corpus of `config`, encoded with the tokenizer of the run that resumes, if one does. Throws gpt::Error(checkpoint)
// where the data are not those of that run.
data::Corpus load_run_corpus(const Config& config, const std::optional<StartingPoint>& start);

}  // namespace gpt::run
