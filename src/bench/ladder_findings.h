// How rows of measured steps are shown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/ladder.h"

namespace gpt::bench {

// `is_ladder`: with a column for what all rows so far gain together. `start_loss` is what the losses are compared with.
Table ladder_table(const std::vector<LadderRow>& rows, const char* first_column, bool is_ladder, double start_loss);
// "Training for 1,000 updates takes 3m20s with the first row, and 18 s with the fastest that is kept, NAME."
std::string training_time(const std::vector<LadderRow>& rows);
double start_loss_of(const std::vector<LadderRow>& rows);  // the loss of the first row
// "What the rungs set:", and a list of it.
void add_settings(Document& text, const std::vector<LadderRow>& rows, const char* of_what);
// An array. Without `start_loss` the losses are not to be compared: each has another batch.
std::string json_of(const std::vector<LadderRow>& rows, std::optional<double> start_loss);
inline constexpr const char* kTimeChart = "Milliseconds per update: those of the first row, divided by the gain";
std::vector<Bar> bars_of(const std::vector<LadderRow>& rows);  // one for each row that was measured

}  // namespace gpt::bench
