// The sequences that importance is measured on.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "gpt/batches/data_loader.h"
#include "gpt/checkpoint/state.h"

namespace gpt::prune {

// (N, block_size) on the CPU, of the text, the conversations or the bin, in the ids of the checkpoint's tokenizer: `most` sequences, evenly
// spread and without overlap, or as many as there are. Conversations are laid out, marked and packed as gpt-train has them on `device`.
// Throws gpt::Error: data where it cannot be read, is too short or has other ids; config for conversations where the model has no chat
// template.
batches::Batch sequences_of(const std::string& data, const std::string& text_field,
                            const checkpoint::Checkpoint& checkpoint, at::Device device, int64_t most);

}  // namespace gpt::prune
