// What a model takes texts by: its tokenizer and their format. Whoever prepares texts for a model needs nothing else of it.
#pragma once

#include <optional>
#include <string>

#include "gpt/tokenizer/text_format.h"

namespace gpt::exchange {

struct TextsOfModel {
  std::string tokenizer;  // JSON
  tokenizer::TextFormat format;
};

// Tokenizer and format of the model in a folder of Hugging Face's form, a checkpoint or the folder of a run. Nothing for a path that is
// none of these. Throws gpt::Error(checkpoint) where it cannot be read, or the model has no tokenizer.
std::optional<TextsOfModel> texts_of_model(const std::string& path);

}  // namespace gpt::exchange
