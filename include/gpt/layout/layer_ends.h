// How far into a flat buffer of gradients a backward pass has come.
#pragma once

#include <cstdint>
#include <vector>

#include "gpt/layout/parameter_table.h"

namespace gpt::layout {

// Where in the buffer the last trained parameter of each layer and of those after it ends; the last entry is of what follows the blocks. A
// stage has an entry for each layer up to its last one, where those of earlier stages end as its own first one does, and one for what
// follows, which is 0 unless it is the last stage.
std::vector<int64_t> layer_ends(const std::vector<ParameterRow>& rows, const FlatLayout& layout);

}  // namespace gpt::layout
