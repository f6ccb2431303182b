// Adapters (LoRA) that are named beside the model that they go with, by --adapter.
#pragma once

#include <optional>
#include <string>

#include "gpt/checkpoint/base.h"
#include "gpt/config/model_config.h"
#include "gpt/exchange/adapter_import.h"
#include "gpt/tokenizer/text_format.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::generate {

[[noreturn]] void refuse_adapter(const std::string& path, const std::string& why);  // Error(checkpoint)
void require_no_averages(bool averages);  // in place of the weights: Error(config)

struct ReadAdapter {
  exchange::FolderAdapter changes;                        // to the weights of the model
  std::optional<tokenizer::TextFormat> text_format = {};  // what it says of texts, in the ids of the model's tokenizer

  void change(tokenizer::TextFormat& of_model) const;  // to what the adapter says otherwise
};

// Reads adapters of one model, which is known by where it lies, and by the hash of its files.
class AdapterReader {
 public:
  // `path`: where the model lies; `tokenizer`: its own, null where it has none. Model and tokenizer must outlive the reader. Throws gpt::Error(config) where the
  // file is a quantized one, which does not say what it was made of.
  AdapterReader(std::string path, const ModelConfig& model, const tokenizer::Tokenizer* tokenizer);

  // A folder of peft, or a checkpoint of a run with training.lora_rank. Throws gpt::Error(checkpoint) where it cannot be read, or goes with
  // another model.
  ReadAdapter read(const std::string& path);

 private:
  bool is_at(const std::string& path) const;
  const checkpoint::BaseModel& described();
  [[noreturn]] void refuse_other(const std::string& path, const checkpoint::BaseModel& base);
  bool is_model(const checkpoint::BaseModel& base, const std::string& checkpoint);
  ReadAdapter read_checkpoint(const std::string& path);
  ReadAdapter read_peft(const std::string& folder);

  const std::string path_;
  const ModelConfig& model_;
  const tokenizer::Tokenizer* const tokenizer_;
  std::optional<checkpoint::BaseModel> described_;
};

}  // namespace gpt::generate
