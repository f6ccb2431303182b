// A model of Hugging Face's, as a run may begin with it: a folder with config.json, model.safetensors (or several such files with their
// index) and tokenizer.json, or one FILE.safetensors with the other two beside it; or a folder of peft with adapters of such a model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpt/exchange/hugging_face.h"

namespace gpt::exchange {

// A .safetensors file, whether or not it is there, or a folder that has adapter_config.json, or config.json and no checkpoint of ours.
bool is_hugging_face(const std::string& path);

struct ForeignModel {
  const Family* family;
  ModelConfig model;      // vocab_multiple and dropout are the defaults
  std::string tokenizer;  // our JSON; empty where there is no tokenizer.json
  std::optional<tokenizer::TextFormat> text_format = {};
  std::vector<std::string> notes = {};  // what is not as in transformers, for whoever uses it there, too
};

// What is known without the weights, which weights.h reads. Throws gpt::Error(checkpoint): a file that cannot be read, a form or a
// tokenizer that this program does not have.
ForeignModel read_foreign_model(const std::string& path);

}  // namespace gpt::exchange
