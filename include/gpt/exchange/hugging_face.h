// Our models and those of Hugging Face's transformers: which of ours is one of theirs, what each tensor is called there, and config.json.
//
//   GPT-2  LayerNorm, GELU (tanh), learned positions, biases; weights of linear layers are [in, out] there. Biases that a model of ours
//          lacks are zeros.
//   Llama  RMSNorm, SwiGLU, RoPE by halves, grouped-query attention, no biases or all; our fused query, key and value are three there.
//
// Rows that only pad the vocabulary exist on our side alone.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/tokenizer/text_format.h"

namespace gpt::exchange {

enum class Family { gpt2, llama };

std::string_view name_of(Family family);  // for people

// Why neither family has this form: the settings that do not fit the nearer one, and what would. Empty where one has it.
std::string misfits(const ModelConfig& model);

// transformers asks for heads that divide the width even where they have a width of their own. Empty where they do; else why not.
std::string heads_that_do_not_divide(const ModelConfig& model);

// What gpt-export will refuse of a model of this form, for whoever is about to train one. Empty where it refuses nothing.
std::string export_limits(const ModelConfig& model);

// The family that has this form. Throws gpt::Error(checkpoint) beginning with `origin` where neither has: it names the settings that do not
// fit and what would. `program` is the one that is to read the model, for the message.
Family family_of(const ModelConfig& model, const std::string& origin, std::string_view program);

// One of their tensors: rows [begin, begin + size) of one of our parameters.
struct Counterpart {
  std::string name;  // theirs
  std::string row;   // ours, as gpt/layout/parameter_table.h names it
  int64_t begin, size;
  bool is_transposed;          // a matrix that is [in, out] there
  bool is_zero = false;        // our model lacks it: zeros there
  std::vector<int64_t> shape;  // theirs
};

// In the order of their names. `model.vocab_size` must be set.
std::vector<Counterpart> counterparts(const ModelConfig& model, Family family);

// config.json. `dtype`: float32, bfloat16 or float16.
nlohmann::ordered_json config_json(const ModelConfig& model, Family family, std::string_view dtype,
                                   const TextFormat& format);

// What a config.json describes. `origin` begins messages. Throws gpt::Error(checkpoint) naming the setting that this program does not have.
struct ForeignForm {
  Family family;
  ModelConfig model;  // vocab_size is set; vocab_multiple and dropout are the defaults
};
ForeignForm read_config_json(std::string_view text, const std::string& origin);

}  // namespace gpt::exchange
