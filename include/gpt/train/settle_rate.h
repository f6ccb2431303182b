// learning_rate: auto: the search, and what is said of it.
#pragma once

#include <string>

#include "gpt/run/beginning.h"
#include "gpt/run/folder.h"
#include "gpt/run/setup.h"

namespace gpt {

// The setup's configuration has the number that was found, or the default where there was no time to compare any. The first process, which
// has the folder, draws the losses in the terminal and returns the chart for learning_rate.svg; nothing where there is none. All processes of
// the run call it. Throws as run::find_rate().
std::string settle_learning_rate(run::Setup& setup, const run::Beginning& begins, const run::Folder& folder);

void write_rate_chart(const run::Folder& folder, const std::string& svg);

}  // namespace gpt
