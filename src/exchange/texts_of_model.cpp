#include "gpt/exchange/texts_of_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gpt/checkpoint/file_names.h"
#include "gpt/container/container.h"
#include "gpt/core/error.h"
#include "gpt/exchange/text_format_files.h"
#include "gpt/exchange/tokenizer_files.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::exchange {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void refuse_model(const std::string& path, const std::string& why) {
  throw Error(ExitCode::checkpoint, fmt::format("{}: {}", path, why));
}

TextsOfModel of_folder(const std::string& folder) {
  const std::string file = tokenizer_file_of(folder);
  if (file.empty()) refuse_model(folder, "it has no tokenizer.json or tokenizer.model, and no checkpoint of a run");
  const auto tokenizer = read_tokenizer_file(file);
  const auto format = read_text_format(folder, tokenizer.get(), tokenizer->vocab_size());
  return {tokenizer->to_json(), tokenizer::text_format_of(format, *tokenizer)};
}

TextsOfModel of_checkpoint(const std::string& path) {
  const container::ContainerReader file(path);
  TextsOfModel texts{std::string(file.text("tokenizer.json")), {}};
  if (texts.tokenizer.empty()) refuse_model(path, "it has no tokenizer, because its run was given token ids");
  try {
    const ordered_json description = ordered_json::parse(file.text("checkpoint.json"));
    const ordered_json::json_pointer place("/values/text_format");
    if (description.contains(place)) texts.format = description.at(place).get<tokenizer::TextFormat>();
  } catch (const ordered_json::exception& fault) { refuse_model(path + ": checkpoint.json", fault.what()); }
  texts.format = tokenizer::text_format_of(texts.format, *tokenizer::tokenizer_from_json(texts.tokenizer, path));
  return texts;
}

}  // namespace

std::optional<TextsOfModel> texts_of_model(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const std::string file = checkpoint::checkpoint_file(path);
  if (std::filesystem::is_regular_file(file, ignored) && file.ends_with(".pt")) return of_checkpoint(file);
  if (is_folder) return of_folder(path);
  return std::nullopt;
}

}  // namespace gpt::exchange
