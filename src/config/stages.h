// data.stages between YAML and the struct.
#pragma once

#include <string>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/config/node.h"

namespace gpt::config {

// Throws gpt::Error(config) with the place of the fault: an unknown key, a wrong value, steps that do not rise from 0.
std::vector<Stage> read_stages(const Node& node);

// [{from: 0, block_size: 64, mix: {main: 1, hard.txt: 0.5}}], which reads back equal.
std::string stages_text(const std::vector<Stage>& stages);

}  // namespace gpt::config
