// The commands of gpt-bench.
#pragma once

namespace gpt::bench {

// Runs the command that argv[1] names, and returns the exit status. Throws gpt::Error as the command does.
int run_command(int argc, char** argv);

}  // namespace gpt::bench
