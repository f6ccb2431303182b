// llama.cpp's architecture for Llama's blocks of which some have windows, and some do not rotate: Granite's, which has attention sinks beside
// them, a score for each head that takes part in the softmax, and of which very low ones are none.
#pragma once

#include "gpt/exchange/families.h"

namespace gpt::exchange {

extern const Architecture kGraniteSwa;

}  // namespace gpt::exchange
