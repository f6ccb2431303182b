// What would be read of an input, and what would not: gpt-prepare --list.
#pragma once

#include <string>

#include "gpt/prepare/prepare_options.h"

namespace gpt::prepare {

// A line for each file with its size and how it is read, in the order of reading, then what is passed over and left out. All
// of the files are read, since some are passed over for what stands far in. `output_dir` may be empty. Throws gpt::Error(data) for what is named itself and cannot be read.
std::string list_input(const PrepareOptions& options, const std::string& output_dir);

}  // namespace gpt::prepare
