// What a command line is told about a word that follows no flag.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gpt::config {

// arguments[place] is the first that no flag took, and is none itself. `flag_for` names the flag that takes the file of a
// given path ("--data"); it may be empty. Returns one line that names the repair.
std::string stray_word_fault(const std::vector<std::string>& arguments, size_t place,
                             const std::function<std::string(const std::string& path)>& flag_for);

}  // namespace gpt::config
