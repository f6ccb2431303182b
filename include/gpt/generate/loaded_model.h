// A trained model that is ready to compute: what gpt-generate and gpt-eval open. It is a checkpoint of ours, a
// quantized model or a model of Hugging Face's.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/option.h"
#include "gpt/config/training_config.h"
#include "gpt/generate/prompt.h"
#include "gpt/model/gpt.h"
#include "gpt/parameters/quantized_weight.h"
#include "gpt/tokenizer/text_format.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::generate {

// What --dtype asks for: a type, or the bits of a quantized model.
struct WeightType {
  Dtype dtype = Dtype::automatic;
  std::optional<parameters::QuantizedType> quantized = {};
  bool operator==(const WeightType&) const = default;
};

struct ModelOptions {
  std::string
      checkpoint;  // a file, or a folder of Hugging Face's; empty where none was named and config::kRunsFolder has none
  std::string adapter;    // of that model, a folder of peft or a run of adapters; empty: none
  std::string tokenizer;  // for a model without one
  bool averages = false;  // of a run's weights, in their place
  std::string device = "auto";
  int64_t threads = 0;  // CPU threads; 0 = the program chooses
  WeightType dtype = {};
  bool prefers_speed =
      false;  // automatic takes the fastest type that loses nothing (type_choice.h), instead of the smallest one
};

// What --threads is where a token of each text is computed at a time (thread_choice.h).
inline constexpr const char* kThreadsAreTried =
    "CPU threads; 0 = as many as turn out to be fastest while text is written";

// `threads`: the help of --threads.
std::vector<config::Option> options(ModelOptions& options, const std::string& threads);

// The same with --adapter, for programs that compute with one alone.
std::vector<config::Option> rows_with_adapter(ModelOptions& options, const std::string& threads);

// What --checkpoint stands for: a file, the folder of a run, which means its newest checkpoint, or a model of Hugging Face's. Nothing is
// the newest run in config::kRunsFolder; empty where that has none.
std::string find_model(const std::string& named);

struct LoadedModel {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<model::GPT> model;
  std::string device_name;                                  // "NVIDIA H200", or the CPU's model name
  at::ScalarType weight_type = at::kFloat;                  // of the weights on a CPU; what a GPU computes in
  std::optional<parameters::QuantizedType> quantized = {};  // instead of weight_type
  at::ScalarType compute_type = at::kFloat;                 // for Autocast and caches
  tokenizer::TextFormat text_format = {};                   // of the model, else by the names of its tokens
  std::optional<int32_t> start = {};  // the token that a sample without a prompt begins behind, where that is known
};

PromptStart prompt_start(const LoadedModel& loaded);
std::string_view weight_name(const LoadedModel& loaded);  // "float32", "int8"

// Loads it onto the device, and says on the log what it is. Throws gpt::Error: checkpoint where it cannot be read or has no tokenizer,
// config where the options do not fit it.
LoadedModel load_model(const ModelOptions& options);

// Says on the log where it computes; `threads`: those of the CPU, in words.
void announce_device(const LoadedModel& loaded, const std::string& threads);

}  // namespace gpt::generate
