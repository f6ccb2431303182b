// Whether the parts of a checkpoint fit together. Every hash may agree in a file that no trainer could have written: it is
// refused before anything is allocated for the model that it describes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/checkpoint/state.h"

namespace gpt::checkpoint {

// The configuration is valid, weights and moments are those of its model and finite, counters and random states are possible,
// and the tokenizer can be read. Throws gpt::Error(checkpoint): what is wrong, and what it should be.
void require_consistent(const Checkpoint& checkpoint);

// What of that does not need training.
void require_consistent_model(const Checkpoint& checkpoint);

// The same without the weights: configuration and tokenizer, where samples start, and the tokens that the format of texts names.
void require_usable(const Config& config, const std::string& tokenizer, const std::optional<int64_t>& sample_start,
                    const std::optional<tokenizer::TextFormat>& text_format);

}  // namespace gpt::checkpoint
