// gpt-prune: a checkpoint and a text in, a smaller checkpoint out, and on standard output what it is.
#pragma once

#include "gpt/prune/options.h"

namespace gpt::prune {

// Throws gpt::Error.
void prune_checkpoint(const PruneOptions& options);

}  // namespace gpt::prune
