// How rows of measured steps are shown.
#pragma once

#include <string>
#include <vector>

#include "gpt/bench/ladder.h"

namespace gpt {

// `is_ladder`: with a column for what all rows so far gain together.
std::string ladder_table(const std::vector<LadderRow>& rows, const char* first_column, bool is_ladder);
std::string settings_list(const std::vector<LadderRow>& rows, const char* of_what);  // "What the steps set: ..."
std::string json_of(const std::vector<LadderRow>& rows);                             // an array
std::vector<Bar> bars_of(const std::vector<LadderRow>& rows);                        // of those that were measured

}  // namespace gpt
