// How a model's texts are laid out: which tokens begin, end and pad them, and the template of its chats. A tokenizer does not know all of
// it, so models of other programs say it in files of their own (gpt/exchange/text_format_files.h). Checkpoints keep it, and exports pass it
// on. Of a model that came without it, the names of the tokenizer's special tokens tell what can be known.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::tokenizer {

struct TextFormat {
  std::optional<int32_t> begin = {}, pad = {}, unknown = {};
  std::vector<int32_t> ends = {};  // a text ends at each of them
  std::vector<int32_t> prefix =
      {};  // what the model has always seen before a text: prompts and documents begin with it
  std::optional<int32_t> tokenizer_end = {};  // what tokenizer_config.json calls eos_token, usually one of those
  std::string chat_template = {};             // Jinja; empty: none

  std::optional<int32_t> end() const;  // where one token stands for all that end a text
  std::vector<int32_t> ids() const;    // all that are named
  bool operator==(const TextFormat&) const = default;
};

TextFormat format_by_names(const Tokenizer& tokenizer);

// What `known` leaves open about beginnings and ends, the names say.
TextFormat text_format_of(const std::optional<TextFormat>& known, const Tokenizer& tokenizer);

// The names are Hugging Face's. What is nothing or empty is left out.
void to_json(nlohmann::ordered_json& json, const TextFormat& format);
void from_json(const nlohmann::ordered_json& json, TextFormat& format);

}  // namespace gpt::tokenizer
