// What the command lines of the programs without a configuration share.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gpt::config {

// Parses into what `app` declares, and adds --help and --version to it; '_' in a flag's name is '-'. False when one of
// those was answered on standard output. Throws gpt::Error(config) with the nearest flag for an unknown one. Arguments that
// are neither flags nor their values, and all after "--", go to `words`; a program without them refuses such arguments.
bool parse_arguments(CLI::App& app, int argc, const char* const* argv, std::vector<std::string>* words = nullptr);

// Throws gpt::Error(config) that points to the program's --help.
[[noreturn]] void refuse_arguments(const CLI::App& app, const std::string& message);

}  // namespace gpt::config
