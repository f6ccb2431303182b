// What completes a program's command line in a shell, made from the same rows as its --help: flags, and the values of those
// that have a fixed set of them. Everything else is completed as a file's name.
#pragma once

#include <string>

#include "gpt/config/arguments.h"

namespace gpt::config {

enum class Shell { bash, zsh };

// A script for the shell. That of a command of a program (gpt-bench ladder) is a function, which the script of the program itself calls
// and therefore has to follow.
std::string completion_script(const Program& program, Shell shell);

}  // namespace gpt::config
