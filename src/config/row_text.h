// What --help and the manual pages say of a row.
#pragma once

#include <string>

#include "gpt/config/option.h"

namespace gpt::config {

// "-n, --max-new-tokens 200": a switch takes no value, and what has no default shows where its value goes.
std::string flag_of(const Option& row);

// The help, the [range or choices] and the (other spellings).
std::string explanation_of(const Option& row);

}  // namespace gpt::config
