// gpt-board tell FOLDER VERB [VALUE]: tells a run what to do.
#pragma once

namespace gpt::board {

// argv[0] is "tell". Prints what the run says, and returns the exit status. Throws gpt::Error: config for a wrong command line, and failed_check
// where the run refuses, or none listens.
int tell_command(int argc, const char* const* argv);

}  // namespace gpt::board
