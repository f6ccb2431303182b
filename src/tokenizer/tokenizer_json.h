// Reads Hugging Face's tokenizer.json for the factory, which has already parsed the JSON to see what kind of file it is.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer_pipeline.h"

namespace gpt::tokenizer {

TokenizerPipeline read_tokenizer_json(const nlohmann::json& file, const std::string& origin);

}  // namespace gpt::tokenizer
