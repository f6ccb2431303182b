// Reads Hugging Face's tokenizer.json for the factory, which has already parsed the JSON to see what kind of file it is.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gpt/tokenizer/bpe_model.h"

namespace gpt {

BpeModel read_tokenizer_json(const nlohmann::json& file, const std::string& origin);

}  // namespace gpt
