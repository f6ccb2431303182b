// What CLI11 refuses, in our words: it names neither the value nor what would be right.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gpt::config {

// What an option that comes last lacks.
std::string missing_value(const CLI::Option& option);

// What CLI11 would take for a number but is none: an empty text, a negative one where there is no sign.
std::optional<std::string> misread_value(const CLI::Option& option, const std::string& value);

// Why `app` refused its arguments, in one line. It must just have thrown: its options are run once more to find out
// which of them did.
std::string argument_fault(CLI::App& app);

}  // namespace gpt::config
