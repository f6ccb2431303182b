#include "own_files.h"

#include <algorithm>
#include <iterator>

#include "gpt/config/run_files.h"
#include "gpt/data/metadata.h"

namespace gpt::prepare {

namespace {

// A model or an adapter in Hugging Face's form: its weights and their description.
bool holds_model(const std::vector<std::string>& names) {
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const auto has_weights = [](const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") || name == "pytorch_model.bin";
  };
  return (has("config.json") || has("adapter_config.json")) && std::any_of(names.begin(), names.end(), has_weights);
}

// The files beside its weights that are text, but nothing to train on.
bool belongs_to_model(const std::string& name) {
  constexpr const char* kNames[] = {"README.md",
                                    "config.json",
                                    "adapter_config.json",
                                    "generation_config.json",
                                    "tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "tokenizer.model"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.ends_with(".safetensors") ||
         name.ends_with(".index.json") || name == "pytorch_model.bin";
}

}  // namespace

OwnFiles::OwnFiles(const std::vector<std::string>& names)
    : holds_run_(holds_run(names)),
      holds_tokens_(std::find(names.begin(), names.end(), data::kTokenizerFile) != names.end()),
      holds_model_(holds_model(names)) {}

const char* OwnFiles::file(const std::string& name) const {
  // A start that was refused leaves a log and no run.
  if (name == kRunLog || (holds_run_ && (belongs_to_run(name) || name == kSetAside))) return "a run";
  const bool is_tokens =
      name == data::kBinFile || name == data::kMarksFile || name == data::kTokenizerFile || name == data::kMetadataFile;
  if (holds_tokens_ && (is_tokens || name == "train.bin" || name == "val.bin")) return "token ids";
  return holds_model_ && belongs_to_model(name) ? "a model" : nullptr;
}

}  // namespace gpt::prepare
