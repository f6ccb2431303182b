// A run that resumes: whether its configuration and data are still those of its checkpoint. gpt-train checks before it
// resumes, gpt-diagnose beforehand.
#pragma once

#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/train/run_folder.h"

namespace gpt {

// Prints the changes since the checkpoint that are safe (old -> new), and throws gpt::Error(checkpoint) naming those that
// would make it another run, and a folder that is free for a new one.
void require_same_configuration(const StartingPoint& start, const Config& now);

// The corpus of `config`, encoded with the tokenizer of the run that resumes, if one does. Throws gpt::Error(checkpoint)
// where the data are not those of that run.
Corpus load_run_corpus(const Config& config, const std::optional<StartingPoint>& start);

}  // namespace gpt
