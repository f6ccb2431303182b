// A program that runs beside this one and may outlive it. The memory of this process is not copied for it, however much that is.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpt {

// command[0] is found as in a shell, but no shell reads the others. `input` is its standard input; what it prints goes nowhere. Ctrl-C in the
// terminal does not reach it. Whoever calls this asks waitpid() for it at times. Throws gpt::Error(failed_check) where it cannot be started.
pid_t start_detached(const std::vector<std::string>& command, const std::string& input);

// Whether there is a program of that name: a path, or what lies in a folder of PATH.
bool is_program(const std::string& name);

}  // namespace gpt
