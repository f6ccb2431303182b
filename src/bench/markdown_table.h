// GitHub's tables, aligned so that a terminal can show them too.
#pragma once

#include <string>
#include <vector>

namespace gpt {

using Cells = std::vector<std::string>;

// The first row is the heading. A column of numbers, with or without units, is aligned to the right.
std::string markdown_table(const std::vector<Cells>& rows);

// Numbers as all tables show them.
std::string as_ratio(double value);  // "1.25x"
std::string as_share(double value);  // of 1: "25 %"

}  // namespace gpt
