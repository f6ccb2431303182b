// Names as people misspell them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::config {

// The form in which names are compared: '-' is '_', and capitals are small letters.
std::string normalised(std::string_view name);

// Damerau-Levenshtein (optimal string alignment): insertions, deletions, substitutions and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `candidates` to `name`, if near enough to be meant.
std::optional<std::string> did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// "; did you mean diary.txt?" for "diary" or "diray.txt": what lies where `path` would, by a name near its own, with its ending or
// without. Empty where there is nothing like it.
std::string did_you_mean_path(const std::string& path);

}  // namespace gpt::config
