// What gpt-diagnose does with its command line.
#pragma once

namespace gpt::diagnose {

// Runs the checks that are asked for, or shows runs or the cache of texts, and returns the exit status. Throws gpt::Error(config).
int diagnose(int argc, char** argv);

}  // namespace gpt::diagnose
