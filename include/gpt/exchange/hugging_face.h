// Our models and those of Hugging Face's transformers: which family has the form of one of ours, what each tensor is called there, and
// config.json. The families themselves are in families.h.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/exchange/families.h"
#include "gpt/tokenizer/text_format.h"

namespace gpt::exchange {

// Why no family has this form: the settings that do not fit the nearest one, and what would. Empty where one has it.
std::string misfits(const ModelConfig& model);

// transformers asks for heads that divide the width even where they have a width of their own. Empty where they do; else why not.
std::string heads_that_do_not_divide(const ModelConfig& model);

// The form in which a family has a model of the same function: whether norms add 1 to their weights, and whether the embedding is multiplied by
// the root of its width, weights can make up for. `model` itself where no family has it.
ModelConfig with_scales_moved(const ModelConfig& model);

// What gpt-export will refuse of a model of this form, for whoever is about to train one. Empty where it refuses nothing.
std::string export_limits(const ModelConfig& model);

// The family that has this form. Throws gpt::Error(checkpoint) beginning with `origin` where none has: it names the settings that do not
// fit and what would. `program` is the one that is to read the model, for the message.
const Family& family_of(const ModelConfig& model, const std::string& origin, std::string_view program);
// The same for llama.cpp, which does not compute all models of a family.
struct LlamaCppForm {
  const Family& family;
  const Architecture& architecture;
};
LlamaCppForm llama_cpp_form(const ModelConfig& model, const std::string& origin);

// Why a program that reads an exported folder does not compute this model; empty: it does. "it has model.tie_weights true".
std::string limit_of_reader(const ModelConfig& model, std::span<const Limit> limits);

// In the order of their names. `model.vocab_size` must be set.
std::vector<Counterpart> counterparts(const ModelConfig& model, const Family& family);

// config.json. `dtype`: float32, bfloat16 or float16.
nlohmann::ordered_json config_json(const ModelConfig& model, const Family& family, std::string_view dtype,
                                   const tokenizer::TextFormat& format);

// What a config.json describes. `origin` begins messages. Throws gpt::Error(checkpoint) naming the setting that this program does not have.
struct ForeignForm {
  const Family* family;
  ModelConfig model;              // vocab_size is set; vocab_multiple and dropout are the defaults
  std::string text_part_of = {};  // the model_type of a model that sees images, too; empty: it is a model of text
};
ForeignForm read_config_json(std::string_view text, const std::string& origin);

}  // namespace gpt::exchange
