// The sequences that importance is measured on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "gpt/checkpoint/state.h"

namespace gpt::prune {

// (N, block_size + 1) int64 of the text or the bin, in the ids of the checkpoint's tokenizer: `most` sequences, evenly spread and without
// overlap, or as many as there are. Throws gpt::Error: data where it cannot be read, is too short or has other ids.
at::Tensor sequences_of(const std::string& data, const std::string& text_field, const Checkpoint& checkpoint,
                        int64_t most);

}  // namespace gpt::prune
