// A folder of Hugging Face's peft: adapters (LoRA) of a model that lies in another folder.
#pragma once

#include <map>
#include <string>

#include "gpt/config/model_config.h"
#include "gpt/exchange/families.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::exchange {

bool holds_adapter(const std::string& folder);

// The folder of the model, as the adapter names it, or beside the adapter under the same last name. Throws gpt::Error(checkpoint) where it is
// in neither place.
std::string base_of_adapter(const std::string& folder);

std::string file_of_adapter(const std::string& folder);  // with its tensors

// Adds the adapters to the weights of the model. `tensors`: all of that file, float32. Throws gpt::Error(checkpoint): something that peft can
// do and this program cannot, or a tensor that is missing, misshapen, or of a module that the model does not have.
void add_adapter(const std::string& folder, const std::map<std::string, at::Tensor>& tensors, const ModelConfig& model,
                 const Family& family, NamedTensors& weights);

}  // namespace gpt::exchange
