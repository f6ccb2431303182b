// model.preset: auto on this machine: what the table of config/automatic.h is asked with, and what is said of its choice.
#pragma once

#include "gpt/config/load.h"

namespace gpt {

// For config::parse_command_line(): chooses sizes where none was written out.
void choose_for_this_machine(Config& config, const config::Origins& origins);

// A new run begins: says what was chosen for it, and where an earlier run of the same configuration lies in models/run, which
// was the default folder once.
void announce_choice(const Config& config, const config::Origins& origins);

}  // namespace gpt
