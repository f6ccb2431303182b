#include "gpt/exchange/import.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "gpt/checkpoint/file_names.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/exchange/tokenizer_files.h"
#include "gpt/tokenizer/bpe_files.h"

namespace gpt::exchange {
namespace {

constexpr SizeLimit kConfigSize{"a config.json", 1 << 20};

std::string folder_of(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return path;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string read_foreign_tokenizer(const std::string& file, const ModelConfig& model) {
  try {
    const auto tokenizer = tokenizer_from_hugging_face(read_file(file, ExitCode::checkpoint, kTokenizerSize), file);
    if (tokenizer->vocab_size() <= *model.vocab_size) return tokenizer->to_json();
    throw Error(ExitCode::checkpoint, fmt::format("{} has {} tokens, and the model of config.json {}", file,
                                                  tokenizer->vocab_size(), *model.vocab_size));
  } catch (const Error& error) { throw Error(ExitCode::checkpoint, error.what()); }
}

}  // namespace

bool is_hugging_face(const std::string& path) {
  std::error_code ignored;
  if (path.ends_with(".safetensors")) return true;
  return std::filesystem::is_regular_file(path + "/config.json", ignored) &&
         newest_first(path, names_in(path, ignored)).empty();
}

ForeignModel read_foreign_model(const std::string& path) {
  const std::string folder = folder_of(path), config = folder + "/config.json", tokenizer = folder + "/tokenizer.json";
  const ForeignForm form = read_config_json(read_file(config, ExitCode::checkpoint, kConfigSize), config);
  std::error_code ignored;
  const bool has_tokenizer = std::filesystem::exists(tokenizer, ignored);
  std::string json = has_tokenizer ? read_foreign_tokenizer(tokenizer, form.model) : "";
  return {form.family, form.model, std::move(json)};
}

}  // namespace gpt::exchange
