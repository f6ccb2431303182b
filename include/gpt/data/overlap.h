// Whether validation text is training text too, which would make the validation loss meaningless.
#pragma once

#include <cstdint>
#include <functional>

#include "gpt/data/token_file.h"

namespace gpt::data {

struct Overlap {
  int64_t windows = 0;                                    // windows of validation tokens that were looked for
  int64_t found = 0;                                      // how many of these occur somewhere in the training tokens
  int64_t validation_position = -1, train_position = -1;  // positions of the window that was found first in training
  double share() const { return windows == 0 ? 0 : static_cast<double>(found) / static_cast<double>(windows); }
};

// Looks for windows of 64 validation tokens, 1,024 of them evenly spread, at every position of the training tokens: one
// pass with a rolling hash on all cores, a hit compared id by id. Memory does not grow with the data. `reached` is called
// now and then with the number of training tokens that are done, and may throw, which ends the search.
Overlap find_overlap(const Tokens& train, const Tokens& validation, const std::function<void(int64_t)>& reached = {});

}  // namespace gpt::data
