// The families of models that other programs have, too. Each is a value that one file makes, families/NAME.cpp: its form, its config.json, and
// what its tensors and keys are called in Hugging Face's transformers and in llama.cpp. All else in this folder goes by these values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::exchange {

class ConfigSettings;

// Names of ours; that of the head, also of one that is tied, is theirs in all families, too.
inline constexpr const char *kEmbedding = "transformer.wte.weight", *kHead = "lm_head.weight";

// One of their tensors: rows [begin, begin + size) of one of our parameters.
struct Counterpart {
  std::string name;       // transformers'
  std::string gguf_name;  // llama.cpp's
  std::string row;        // ours, as gpt/layout/parameter_table.h names it
  int64_t begin, size;
  std::vector<int64_t> shape;  // transformers'
  bool is_transposed = false;  // a matrix that is [in, out] in transformers
  bool is_zero = false;        // our model lacks it: zeros there
  double gguf_offset = 0;      // what is added to the values there
  // > 0: the rows of so many heads, whose RoPE turns neighbouring columns in llama.cpp, and column i with column i + half in transformers and
  // here. So their order is another one in GGUF.
  int64_t gguf_rope_heads = 0;
};

// What describes a model in GGUF; the name without the architecture before it.
struct ArchitectureKey {
  const char* name;
  std::variant<uint32_t, float, const char*, std::vector<int32_t>> value;
};

// A tensor of GGUF that says nothing of this model, because its architecture has more than the family.
struct GgufConstant {
  std::string name;
  int64_t size;
  float value;  // of all its elements
};

// What a program does not compute of a family.
struct Limit {
  std::string_view setting;                     // in Markdown: "not with ..."; empty: of every model
  bool (*is_beyond)(const ModelConfig& model);  // whose patterns have a letter for each layer
  std::string_view has;                         // what the program does instead: "has model.tie_weights true"
};

// One of llama.cpp's architectures, as models of a family are written for it.
struct Architecture {
  std::string_view name;
  std::vector<ArchitectureKey> (*keys)(const ModelConfig& model);              // beside those of all
  std::vector<GgufConstant> (*constants)(const ModelConfig& model) = nullptr;  // null: none
  std::span<const Limit> limits = {};
};

struct Family {
  std::string_view name;                               // for people
  std::string_view form;                               // for people: what its blocks have
  std::string_view model_type;                         // in config.json
  std::span<const Architecture* const> architectures;  // llama.cpp's; a model is written for the first that computes it
  // Puts what all models of the family have in place of what the model has there, whose patterns have a letter for each layer.
  void (*set_form)(ModelConfig& model);
  std::vector<Counterpart> (*counterparts)(const ModelConfig& model);  // `model.vocab_size` must be set
  // What config.json says of this family alone, written and read. Reading throws gpt::Error(checkpoint) naming the setting that this program
  // does not have. vocab_size is what a file without it means, if anything.
  nlohmann::ordered_json (*config_json)(const ModelConfig& model);
  ModelConfig (*read_config)(const ConfigSettings& settings);
  // Limits of programs that read a folder as it is written for transformers.
  std::span<const Limit> ctranslate2_limits = {}, mlx_lm_limits = {};
  // How transformers' AutoTokenizer splits text for these models, by llama.cpp's name, whatever tokenizer.json says; empty: as that says.
  std::string_view auto_split = {};
};

extern const Family kGpt2Family, kLlamaFamily, kQwen2Family, kQwen3Family, kMistralFamily, kMinistralFamily,
    kSmolLM3Family, kGemmaFamily, kGemma3Family, kOlmo2Family, kOlmo3Family, kArceeFamily;

// In the order in which a model is looked for among them.
std::span<const Family* const> families();

// For the files of families: norms at the input alone, whose weights are factors, and an embedding as it is.
void set_plain_norms(ModelConfig& model);

// What tensors are called, with {} for the layer and without ".weight" or ".bias".
struct TensorNames {
  const char *transformers, *llama_cpp;
};
struct RoleNames {
  layout::ParameterRole role;
  TensorNames names;
};
// Throws std::logic_error where the family has no such tensor.
const TensorNames& names_of(const layout::ParameterRow& row, std::span<const RoleNames> family);
Counterpart counterpart(const layout::ParameterRow& row, const TensorNames& names, int64_t begin, int64_t size);
// The counterpart of all rows but those that only pad the vocabulary, which exist on our side alone.
Counterpart counterpart(const layout::ParameterRow& row, const TensorNames& names, const ModelConfig& model);

}  // namespace gpt::exchange
