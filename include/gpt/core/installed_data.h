// Where scripts/get_data.sh and scripts/install.sh put the default corpus and GPT-2's vocabulary.
#pragma once

#include <string>

namespace gpt {

// The path of data/NAME in the working directory, in the checkout around build/bin or in PREFIX/share/gpt-train beside
// PREFIX/bin; empty if none of them has it.
std::string installed_data(const std::string& name);

}  // namespace gpt
