// What the files beside tokenizer.json say about a model's texts: config.json and generation_config.json have the numbers of the tokens that
// begin, end and pad them, tokenizer_config.json (of older folders, special_tokens_map.json) has their names, and chat_template.jinja (of
// older folders, a member of tokenizer_config.json) the template of chats.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gpt/tokenizer/text_format.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::exchange {

inline constexpr const char* kChatTemplateFile = "chat_template.jinja";

// Nothing where no file says anything. A text ends at the tokens of both configurations. Numbers that the model does not have are left out.
// `tokenizer`: the folder's, or null. Throws gpt::Error(checkpoint) naming the file and what is wrong in it.
std::optional<tokenizer::TextFormat> read_text_format(const std::string& folder, const tokenizer::Tokenizer* tokenizer,
                                                      int64_t vocab_size);

// Whether the class of the folder's tokenizer, named there or implied by the model, is GPT-2's.
bool names_gpt2_tokenizer(const std::string& folder);

// Where transformers splits text otherwise than tokenizer.json says, because of the class that is named beside it: what to do about it. Empty
// where it does not.
std::string class_that_splits_otherwise(const std::string& folder);

// The tokens as members of config.json and generation_config.json; what there is not is missing.
nlohmann::ordered_json numbered_tokens(const tokenizer::TextFormat& format);

// generation_config.json. It has no length: transformers warns of one whenever it is given another. Where it says nothing of top_k,
// transformers draws from the 50 likeliest tokens alone.
nlohmann::ordered_json generation_config_json(const tokenizer::TextFormat& format);

// tokenizer_config.json, whose class takes tokenizer.json as it is.
nlohmann::ordered_json tokenizer_config_json(const tokenizer::Tokenizer& tokenizer, const tokenizer::TextFormat& format,
                                             int64_t block_size);

}  // namespace gpt::exchange
