// gpt-serve --adapter: adapters (LoRA) of the model that is served, each under a name of its own, read and checked against that model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpt/generate/loaded_model.h"
#include "gpt/ops/row_adapters.h"
#include "gpt/tokenizer/text_format.h"

namespace gpt::serve {

struct NamedAdapter {
  std::string name;
  std::string path;  // a folder of peft, or a checkpoint of a run with training.lora_rank
};

// Each is written as NAME=PATH, or as the path alone, whose name is then that of the folder or file. Throws gpt::Error(config) where a name is
// empty, is there twice, or is `model`, what the model itself is called.
std::vector<NamedAdapter> parse_adapters(const std::vector<std::string>& written, const std::string& model);

struct LoadedAdapter {
  std::vector<ops::AdapterFactors> factors;  // on the device of the model
  tokenizer::TextFormat text_format;         // the model's, but for what the adapter says otherwise
};

// Loads adapters of the model that was loaded with `of_model`, in their order; the log says what each is. Throws gpt::Error: checkpoint
// where one cannot be read, or goes with another model; config where the model has no form that adapters go with.
std::vector<LoadedAdapter> load_adapters(const std::vector<NamedAdapter>& adapters,
                                         const generate::ModelOptions& of_model, const generate::LoadedModel& loaded);

}  // namespace gpt::serve
