// Whether the parts of a checkpoint fit together. Every hash may agree in a file that no trainer could have written: it is
// refused before anything is allocated for the model that it describes.
#pragma once

#include "gpt/checkpoint/state.h"

namespace gpt::checkpoint {

// The configuration is valid, weights and moments are those of its model and finite, counters and random states are possible,
// and the tokenizer can be read. Throws gpt::Error(checkpoint): what is wrong, and what it should be.
void require_consistent(const Checkpoint& checkpoint);

}  // namespace gpt::checkpoint
