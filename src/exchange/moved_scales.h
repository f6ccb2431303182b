// Factors that may stand in one of several places: the 1 of a norm whose weight is added to it, and the factor of an embedding. Where no family
// has a model's form because of them, weights take them over, and the function stays.
#pragma once

#include "gpt/checkpoint/state.h"

namespace gpt::exchange {

// The same model in the form that with_scales_moved() of gpt/exchange/hugging_face.h has for it, with weights for that.
checkpoint::Checkpoint with_scales_moved(checkpoint::Checkpoint checkpoint);

}  // namespace gpt::exchange
