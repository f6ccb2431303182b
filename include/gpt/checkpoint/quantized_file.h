// A model of 8 or 4 bits in a file, made once of a checkpoint by gpt-export, and opened by whatever computes with models. It has the form
// of checkpoints (gpt/container/container.h), so that every bit of it is covered by a hash. Its records:
//   quantized.json   the first; the form's number, the type, and the name, dtype and shape of every tensor
//   config.yaml      the configuration of the run     tokenizer.json   the tokenizer
//   data/NAME        a tensor in float32, or NAME.codes, NAME.scales and NAME.offsets as gpt/parameters/quantized_weight.h has them
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/model/quantized_model.h"
#include "gpt/tokenizer/text_format.h"

namespace gpt::checkpoint {

inline constexpr const char* kQuantizedRecord = "quantized.json";

struct QuantizedFile {
  Config config;
  model::QuantizedTensors tensors;
  std::string tokenizer;  // JSON; empty where the run read token ids
  int64_t step = 0;       // of the checkpoint
  std::optional<int64_t> sample_start = {};
  std::optional<tokenizer::TextFormat> text_format = {};
};

// Whether the file begins as one: what it is worth shows when it is read.
bool is_quantized(const std::string& path);

// Throws gpt::Error(disk), leaving an old file untouched.
void write_quantized(const std::string& path, const QuantizedFile& model);

// A whole file whose parts fit together. Throws gpt::Error(checkpoint) with the reason.
QuantizedFile read_quantized(const std::string& path);

}  // namespace gpt::checkpoint
