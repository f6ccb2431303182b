// A folder of Hugging Face's peft: adapters (LoRA) of a model that lies in another folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpt/checkpoint/adapters.h"
#include "gpt/config/model_config.h"
#include "gpt/exchange/families.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::exchange {

bool holds_adapter(const std::string& folder);

// What the adapter calls its model: a path, or a name that was downloaded by; empty where it does not say.
std::string name_of_base(const std::string& folder);
// The folder of the model, as the adapter names it, or beside the adapter under the same last name; nothing where it is in neither place.
std::optional<std::string> find_base_of_adapter(const std::string& folder);
// The folder that find_base_of_adapter() finds. Throws gpt::Error(checkpoint) where it is in neither place.
std::string base_of_adapter(const std::string& folder);

std::string file_of_adapter(const std::string& folder);  // with its tensors

// Rows of a parameter, from `begin` on, that were trained themselves (peft's modules_to_save).
struct WholeRows {
  std::string parameter;  // a name of the parameter table
  int64_t begin;
  at::Tensor values;
};

struct FolderAdapter {
  std::vector<checkpoint::WeightAdapter> added;
  std::vector<WholeRows> whole;
};

// What it does to the weights of the model. `tensors`: all of that file, float32. Throws gpt::Error(checkpoint): something that peft can do and
// this program cannot, or a tensor that is missing, misshapen, or of a module that the model does not have.
FolderAdapter adapter_of(const std::string& folder, const std::map<std::string, at::Tensor>& tensors,
                         const ModelConfig& model, const Family& family);
void apply_adapter(const FolderAdapter& adapter, parameters::NamedTensors& weights);

}  // namespace gpt::exchange
