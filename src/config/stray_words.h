// What a command line is told about a word that follows no flag.
#pragma once

#include <functional>
#include <string>

namespace gpt::config {

// `word` is the first of the arguments that no flag took, and is none itself. `flag_for` names the flag that takes the
// file of a given path ("--data"), or is empty where there is none. Returns one line that names the repair.
std::string stray_word_fault(int argc, const char* const* argv, const std::string& word,
                             const std::function<std::string(const std::string& path)>& flag_for);

}  // namespace gpt::config
