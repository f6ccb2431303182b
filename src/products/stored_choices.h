// How products are computed, as a checkpoint keeps it, so that a run that goes on computes them in the same way without measuring again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "product_choice.h"

namespace gpt::ops {

struct StoredChoice {
  ProductKey key;
  std::optional<std::string> way;  // in a library's own words; nothing: LibTorch's

  bool operator==(const StoredChoice&) const = default;
};

// JSON. `made_for`: the card and the library, whose ways mean nothing to others.
std::string write_choices(const std::string& made_for, const std::vector<StoredChoice>& choices);

// None where they were made for something else, or where the text is not one that write_choices() has written.
std::vector<StoredChoice> read_choices(const std::string& made_for, const std::string& json);

}  // namespace gpt::ops
