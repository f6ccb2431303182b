// The inside of tokenizer.json of Hugging Face, for the factory, which has parsed the JSON to see what it is.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gpt/tokenizer/bpe.h"

namespace gpt {

BpeModel read_tokenizer_json(const nlohmann::json& file, const std::string& origin);

}  // namespace gpt
