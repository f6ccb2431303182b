#include "gpt/exchange/import.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "gpt/checkpoint/file_names.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/exchange/adapter_import.h"
#include "gpt/exchange/missing_model.h"
#include "gpt/exchange/text_format_files.h"
#include "gpt/exchange/tokenizer_files.h"

namespace gpt::exchange {
namespace {

constexpr SizeLimit kConfigSize{"a config.json", 1 << 20};

std::string folder_of(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return path;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::unique_ptr<tokenizer::Tokenizer> read_foreign_tokenizer(const std::string& file, const ModelConfig& model) {
  try {
    auto tokenizer = read_tokenizer_file(file);
    if (tokenizer->vocab_size() <= *model.vocab_size) return tokenizer;
    throw Error(ExitCode::checkpoint, fmt::format("{} has {} tokens, and the model of config.json {}", file,
                                                  tokenizer->vocab_size(), *model.vocab_size));
  } catch (const Error& error) { throw Error(ExitCode::checkpoint, error.what()); }
}

}  // namespace

bool is_hugging_face(const std::string& path) {
  std::error_code ignored;
  if (path.ends_with(".safetensors") || holds_adapter(path)) return true;
  return std::filesystem::is_regular_file(path + "/config.json", ignored) &&
         checkpoint::newest_first(path, names_in(path, ignored)).empty();
}

ForeignModel read_foreign_model(const std::string& path) {
  std::error_code ignored;
  const bool is_adapter = holds_adapter(path);
  const std::string of_model = is_adapter ? base_of_adapter(path) : folder_of(path);
  // Who trained an adapter may have kept its tokenizer, with another template of chats, beside it.
  const std::string folder = is_adapter && std::filesystem::exists(path + "/tokenizer.json", ignored) ? path : of_model;
  const std::string config = of_model + "/config.json", file = tokenizer_file_of(folder);
  if (is_unfinished_export(of_model)) throw Error(ExitCode::checkpoint, why_missing(of_model));
  const ForeignForm form = read_config_json(read_file(config, ExitCode::checkpoint, kConfigSize), config);
  ForeignModel model{form.family, form.model, ""};
  if (!form.text_part_of.empty())
    model.notes.push_back(fmt::format(
        "{} is a {} model, which also sees images: only its text model is read ({}), and an export is that text model",
        of_model, form.text_part_of, form.family->name));
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (!file.empty()) tokenizer = read_foreign_tokenizer(file, form.model);
  if (file.ends_with("/tokenizer.json"))
    if (std::string note = class_that_splits_otherwise(folder); !note.empty()) model.notes.push_back(std::move(note));
  if (tokenizer) model.tokenizer = tokenizer->to_json();
  model.text_format = read_text_format(folder, tokenizer.get(), *form.model.vocab_size);
  return model;
}

}  // namespace gpt::exchange
