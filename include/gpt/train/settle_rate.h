// learning_rate: auto: the search, and what is said of it.
#pragma once

#include <optional>
#include <string>

#include "gpt/run/beginning.h"
#include "gpt/run/folder.h"
#include "gpt/run/rate_search.h"
#include "gpt/run/setup.h"

namespace gpt::train {

// The setup's configuration has the number that was found, or the default where there was no time to compare any. The first process, which
// has the folder, draws the losses in the terminal. All processes of the run call it and get what was found. Throws as run::find_rate().
std::optional<run::FoundRate> settle_learning_rate(run::Setup& setup, const run::Beginning& begins,
                                                   const run::Folder& folder);

void write_rate_chart(const run::Folder& folder, const run::FoundRate& found);  // learning_rate.svg

// {"learning_rate", "why", "trials": [{"updates", "learning_rate", "loss"}]}: a loss that is not finite is null.
std::string to_json(const run::FoundRate& found);

}  // namespace gpt::train
