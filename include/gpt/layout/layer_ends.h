// How far into a flat buffer of gradients a backward pass has come.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt {

// Of each layer, and of what follows the blocks, where the last trained parameter of it and of those after it ends. Of a stage of the model, up
// to its last layer and what follows: nothing, unless it is the last one.
std::vector<int64_t> layer_ends(const std::vector<ParameterRow>& rows, const FlatLayout& layout);

}  // namespace gpt
