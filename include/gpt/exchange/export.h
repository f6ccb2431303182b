// gpt-export: a checkpoint as a folder that other programs read.
#pragma once

#include <optional>
#include <string>

#include "gpt/config/training_config.h"

namespace gpt::exchange {

struct ExportOptions {
  std::string checkpoint;  // a file
  std::string output;      // a folder
  Dtype dtype = Dtype::float32;
};

// Nothing when --help or --version was answered on standard output. Throws gpt::Error(config).
std::optional<ExportOptions> parse_export_options(int argc, const char* const* argv);

// Writes the folder: model.safetensors, config.json, generation_config.json, README.md and, where the checkpoint has a tokenizer,
// tokenizer.json and tokenizer_config.json. No file takes its name before all are written. Throws gpt::Error: config where the folder holds
// anything but an export, checkpoint where the model has no form that transformers knows, numerics as written_weights() does, disk.
void export_hugging_face(const ExportOptions& options);

}  // namespace gpt::exchange
