#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "foreign_adapters.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/exchange/export.h"
#include "gpt/exchange/gguf.h"
#include "gpt/exchange/gguf_tokenizer.h"
#include "gpt/exchange/llama_cpp.h"
#include "gpt/exchange/model_card.h"
#include "gpt/exchange/weights.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "moved_scales.h"

namespace gpt::exchange {
namespace {

struct GgufFileType {
  GgufType type;
  uint32_t number;  // general.file_type, as llama.cpp numbers them
};

GgufFileType file_type_of(ExportDtype dtype) {
  switch (dtype) {
    case ExportDtype::float32: return {GgufType::f32, 0};
    case ExportDtype::float16: return {GgufType::f16, 1};
    case ExportDtype::q8_0: return {GgufType::q8_0, 7};
    case ExportDtype::bfloat16: return {GgufType::bf16, 32};
    case ExportDtype::int8:
    case ExportDtype::int4: break;  // refused with the options
  }
  throw std::logic_error("no such type");
}

// What our files begin with, and by which they are known.
GgufMetadata beginning_of_ours(const Architecture& architecture) {
  GgufMetadata metadata;
  metadata.add("general.architecture", architecture.name);
  metadata.add("general.tags", std::vector<std::string>{"gpt-train", "text-generation"});
  return metadata;
}

bool is_ours(const std::string& path) {
  const auto begins_as = [&](const Architecture* one) { return gguf_begins_with(path, beginning_of_ours(*one)); };
  return std::any_of(families().begin(), families().end(), [&](const Family* family) {
    return std::any_of(family->architectures.begin(), family->architectures.end(), begins_as);
  });
}

// The folder of the file, which may have to be made.
std::string require_free_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw Error(ExitCode::config, fmt::format("--output {}: it is a folder, and GGUF is one file; name it, such as {}",
                                              path, (std::filesystem::path(path) / "model.gguf").string()));
  if (std::filesystem::exists(path, ignored) && !is_ours(path))
    throw Error(ExitCode::config,
                fmt::format("--output {}: the file is something else than an export; name a new one", path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::unique_ptr<tokenizer::Tokenizer> require_tokenizer(const checkpoint::Checkpoint& checkpoint,
                                                        const std::string& path) {
  if (!checkpoint.tokenizer.empty()) return tokenizer::tokenizer_from_json(checkpoint.tokenizer, path);
  throw Error(
      ExitCode::checkpoint,
      fmt::format("{}: llama.cpp needs a tokenizer, and the checkpoint has none, because its run was given token ids; "
                  "use --format huggingface, and add the one that made them",
                  path));
}

GgufMetadata metadata_of(const checkpoint::Checkpoint& checkpoint, const Architecture& architecture,
                         const GgufFileType& type, const GgufTokenizer& tokenizer) {
  constexpr uint32_t kQuantizationVersion = 2;  // ggml's
  GgufMetadata metadata = beginning_of_ours(architecture);
  metadata.add("general.type", "model");
  metadata.add("general.name", last_name(checkpoint.config.output_dir));
  metadata.add("general.file_type", type.number);
  if (type.type == GgufType::q8_0) metadata.add("general.quantization_version", kQuantizationVersion);
  add_architecture(metadata, checkpoint.config.model, architecture, std::ssize(tokenizer.tokens));
  add_tokenizer(metadata, tokenizer);
  return metadata;
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// The values of one tensor, piece by piece. False if they are not finite in its type.
bool write_values(GgufWriter& file, const at::Tensor& values, GgufType type) {
  constexpr int64_t kPiece = int64_t{1} << 20;  // values: a copy of 4 MB, and whole blocks
  const at::Tensor flat = values.contiguous().flatten();
  if (type == GgufType::f32) {
    file.add(bytes_of(flat));
    return true;
  }
  std::vector<std::byte> blocks;
  for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
    const at::Tensor piece = flat.narrow(0, begin, std::min(kPiece, flat.numel() - begin));
    if (type == GgufType::q8_0) {
      blocks.resize(gguf_bytes(type, piece.numel()));
      if (!quantize_q8_0({piece.const_data_ptr<float>(), static_cast<size_t>(piece.numel())}, blocks)) return false;
      file.add(blocks);
    } else {
      const at::Tensor narrow = piece.to(type == GgufType::f16 ? at::kHalf : at::kBFloat16);
      if (!is_finite(narrow)) return false;
      file.add(bytes_of(narrow));
    }
  }
  return true;
}

// One matrix of an adapter after the other: A and B, whose rows are in the order of llama.cpp's.
std::vector<std::pair<GgufTensor, at::Tensor>> stored_adapters(const checkpoint::Checkpoint& checkpoint,
                                                               const Family& family, GgufType type) {
  std::vector<std::pair<GgufTensor, at::Tensor>> tensors;
  const LoraConfig& lora = checkpoint.config.training.tuning.lora;
  const double alpha = lora.scale() * static_cast<double>(lora.rank);
  for (const ForeignAdapter& adapter : foreign_adapters(checkpoint, family)) {
    const std::string& name = adapter.part.gguf_name;
    // llama.cpp has one alpha for all, and divides it by the rank of each.
    const at::Tensor a = adapter.a, b = in_llama_cpp_order(adapter.b * (adapter.alpha / alpha), adapter.part);
    tensors.push_back({{name + ".lora_a", type, a.sizes().vec()}, a});
    tensors.push_back({{name + ".lora_b", type, b.sizes().vec()}, b});
  }
  return tensors;
}

void write_or_refuse(GgufWriter& file, const GgufTensor& stored, const at::Tensor& values,
                     const ExportOptions& options) {
  if (write_values(file, values, stored.type)) return;
  throw Error(ExitCode::numerics,
              fmt::format("{} is not written: '{}' holds values that are not finite in {}; use --dtype float32",
                          options.output, stored.name, name_of(options.dtype)));
}

}  // namespace

void write_gguf(const ExportOptions& options, const checkpoint::Checkpoint& own) {
  const checkpoint::Checkpoint checkpoint = with_scales_moved(own);
  const std::string folder = require_free_file(options.output);
  const ModelConfig& model = checkpoint.config.model;
  const LlamaCppForm form = llama_cpp_form(model, options.checkpoint);
  const auto own_tokenizer = require_tokenizer(checkpoint, options.checkpoint);
  const GgufTokenizer tokenizer =
      gguf_tokenizer(*own_tokenizer, tokenizer::text_format_of(checkpoint.text_format, *own_tokenizer),
                     *model.vocab_size, options.checkpoint);
  const GgufFileType type = file_type_of(options.dtype);
  const std::vector<LlamaCppTensor> tensors = llama_cpp_tensors(model, form, type.type, tokenizer.adds_end);
  std::vector<GgufTensor> stored;
  for (const LlamaCppTensor& tensor : tensors) stored.push_back(tensor.stored);

  create_folders(folder);
  sweep_unfinished_files(folder);
  GgufWriter file(options.output, metadata_of(checkpoint, form.architecture, type, tokenizer), stored);
  for (const LlamaCppTensor& tensor : tensors)
    write_or_refuse(file, tensor.stored, llama_cpp_values(tensor, checkpoint.model), options);
  file.commit();
  log::success(fmt::format("{}: {} parameters in {}, for llama.cpp in the form of {}", options.output,
                           format_count(static_cast<double>(layout::parameter_count(model))), name_of(options.dtype),
                           form.family.name));
}

void export_gguf(const ExportOptions& options) {
  require_free_file(options.output);
  write_gguf(options, load_weights(options));
}

void export_gguf_adapter(const ExportOptions& options) {
  const std::string folder = require_free_file(options.output);
  const checkpoint::Checkpoint checkpoint = load_adapters(options);
  const LlamaCppForm form = llama_cpp_form(checkpoint.config.model, options.checkpoint);
  const LoraConfig& lora = checkpoint.config.training.tuning.lora;
  if (!lora.also_train.empty())
    throw Error(ExitCode::checkpoint,
                fmt::format("{}: the run has trained more than adapters ({}), and llama.cpp adds adapters to products "
                            "alone; leave --adapter out to export the whole model",
                            options.checkpoint, fmt::join(lora.also_train, ", ")));
  const auto tensors = stored_adapters(checkpoint, form.family, file_type_of(options.dtype).type);
  GgufMetadata metadata = beginning_of_ours(form.architecture);
  metadata.add("general.type", "adapter");
  metadata.add("general.name", last_name(checkpoint.config.output_dir));
  metadata.add("adapter.type", "lora");
  metadata.add("adapter.lora.alpha", static_cast<float>(lora.scale() * static_cast<double>(lora.rank)));
  std::vector<GgufTensor> stored;
  for (const auto& [tensor, values] : tensors) stored.push_back(tensor);
  create_folders(folder);
  sweep_unfinished_files(folder);
  GgufWriter file(options.output, metadata, stored);
  for (const auto& [tensor, values] : tensors) write_or_refuse(file, tensor, values, options);
  file.commit();
  log::success(fmt::format("{}: {} of rank {}, for --lora of llama.cpp beside the model that the run began with",
                           options.output, plural(std::ssize(tensors) / 2, "adapter"), lora.rank));
}

}  // namespace gpt::exchange
