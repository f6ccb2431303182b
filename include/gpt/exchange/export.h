// gpt-export: a checkpoint as other programs read it.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

#include "gpt/checkpoint/checkpoint.h"

namespace gpt::exchange {

enum class ExportFormat { hugging_face, gguf, quantized };
// q8_0 is GGUF's; int8 and int4 are those of quantized models
enum class ExportDtype { float32, bfloat16, float16, q8_0, int8, int4 };

std::string_view name_of(ExportDtype dtype);  // PyTorch's, and ggml's for q8_0

constexpr double kMaxShardSize = 50;  // as transformers has it

struct ExportOptions {
  std::string checkpoint;  // a file
  ExportFormat format = ExportFormat::hugging_face;
  std::string output;  // a folder, or for the other formats a file
  ExportDtype dtype = ExportDtype::float32;
  bool json = false;                          // what was written, on standard output
  bool adapter = false;                       // what the run has trained beside the model alone
  bool averages = false;                      // of the weights, in their place
  std::optional<double> max_shard_size = {};  // GB (1e9 bytes) of weights in a file of a folder; kMaxShardSize
};

// Nothing when --help, --version or --print-families was answered on standard output. Throws gpt::Error(config).
std::optional<ExportOptions> parse_export_options(int argc, const char* const* argv);

// Writes the folder: model.safetensors or several such files with their index, config.json, generation_config.json, README.md and, where the
// checkpoint has them, tokenizer.json and tokenizer_config.json, and chat_template.jinja. No file takes its name before all are written, and
// config.json takes its own last: before that the folder is no model. Throws gpt::Error: config where the folder holds anything but an
// export, checkpoint where the model has no form that transformers knows, numerics as written_weights() does, disk.
void export_hugging_face(const ExportOptions& options);
void write_hugging_face(const ExportOptions& options,
                        const checkpoint::Checkpoint& checkpoint);  // the same once it is read

// Writes the file for llama.cpp, tokenizer included. It takes its name when it is complete. Throws gpt::Error: config where the path holds
// anything but an export, checkpoint where llama.cpp has no such model or tokenizer, numerics for a value that is not finite in the type,
// disk.
void export_gguf(const ExportOptions& options);
void write_gguf(const ExportOptions& options, const checkpoint::Checkpoint& checkpoint);  // the same once it is read

// Writes the model with weights of 8 or 4 bits, tokenizer included, for our own programs (gpt/checkpoint/quantized_file.h). Throws
// gpt::Error: config where the path holds anything but such a model, numerics, disk.
void export_quantized(const ExportOptions& options);

// Write the adapters of a run that has trained such: a folder for Hugging Face's peft, adapter_model.safetensors with adapter_config.json, or
// a file for llama.cpp's --lora. Throw gpt::Error as the others do, and checkpoint where there are none, or where the run has added
// tokens to those of the model that it began with.
void export_peft(const ExportOptions& options);
void export_gguf_adapter(const ExportOptions& options);
checkpoint::Checkpoint load_adapters(const ExportOptions& options);  // with the model

// What is exported: the weights, or their averages.
checkpoint::Checkpoint load_weights(const ExportOptions& options, checkpoint::Parts parts = checkpoint::Parts::model);

// What all folders have.
inline constexpr const char* kModelCard = "README.md";
// Throws gpt::Error(config) where it holds anything but an export, or one of the other kind: whoever reads a folder with a model and an adapter
// takes it for the adapter.
void require_free_folder(const std::string& folder, bool is_for_adapter = false);
at::ScalarType weight_type(ExportDtype dtype);  // of those that LibTorch has

// Exports in the format that `options` name. With `json` {"output", "dtype", "bytes", "files"} is on standard output then.
void export_model(const ExportOptions& options);

}  // namespace gpt::exchange
