// How far into a flat buffer of gradients a backward pass has come.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt {

// Of each layer, and of what follows the blocks, where the last trained parameter of it and of those after it ends. Of a stage: of each layer up
// to its last one, where those of earlier stages end as its own first one does; and of what follows, which is 0 unless it is the last stage.
std::vector<int64_t> layer_ends(const std::vector<ParameterRow>& rows, const FlatLayout& layout);

}  // namespace gpt
