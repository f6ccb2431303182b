// model.preset: auto on this machine: what the table of config/automatic.h is given, and what is said about its choice.
#pragma once

#include "gpt/config/load.h"

namespace gpt::plan {

// For config::parse_command_line(): chooses sizes where none was set, or takes those of training.init_from, with the settings of a tuning.
void choose_for_this_machine(Config& config, const config::Origins& origins);

// A new run begins: says what was chosen for it, also because it begins with the weights of a model, and whether the folder that earlier
// versions would have taken holds one like it.
void announce_choice(const Config& config, const config::Origins& origins, const std::string& config_path);

}  // namespace gpt::plan
