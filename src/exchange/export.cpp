#include "gpt/exchange/export.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/model_card.h"
#include "gpt/exchange/tokenizer_files.h"
#include "gpt/exchange/weights.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::exchange {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char *kCard = "README.md", *kTokenizer = "tokenizer.json", *kTokenizerConfig = "tokenizer_config.json";

at::ScalarType type_of(ExportDtype dtype) {
  if (dtype == ExportDtype::bfloat16) return at::kBFloat16;
  return dtype == ExportDtype::float16 ? at::kHalf : at::kFloat;
}

bool holds_export(const std::string& folder) {
  constexpr SizeLimit kCardSize{"a model card", 1 << 20};
  std::error_code ignored;
  const std::string card = folder + "/" + kCard;
  return fs::is_regular_file(card, ignored) && fs::file_size(card, ignored) <= kCardSize.bytes &&
         is_model_card(read_file(card, ExitCode::config, kCardSize));
}

void require_free(const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return;
  if (!fs::is_directory(folder, ignored))
    throw Error(ExitCode::config,
                fmt::format("--output {}: it is a file, and a folder is needed; name another one, or add --format gguf",
                            folder));
  sweep_unfinished_files(folder);
  if (names_in(folder).empty() || holds_export(folder)) return;
  throw Error(ExitCode::config,
              fmt::format("--output {}: the folder holds something else than an export; name one that is empty or new",
                          folder));
}

// transformers asks for it even where heads have a width of their own.
void require_dividing_heads(const ModelConfig& model, Family family, const std::string& path) {
  if (family != Family::llama || model.n_embd % model.heads() == 0) return;
  throw Error(
      ExitCode::checkpoint,
      fmt::format("{}: transformers has no model of this form: model.n_head {} does not divide model.n_embd {}; "
                  "llama.cpp takes it: add --format gguf",
                  path, model.heads(), model.n_embd));
}

std::string as_text(const ordered_json& json) { return json.dump(2) + "\n"; }

// No length: transformers warns of one whenever it is given another.
ordered_json generation_json(const TextEnds& ends) {
  ordered_json file = ordered_json::object();
  if (ends.begin) file["bos_token_id"] = *ends.begin;
  if (ends.end) file["eos_token_id"] = *ends.end;
  return file;
}

using TextFiles = std::vector<std::pair<std::string, std::string>>;  // name and text

// The card comes first: it says that the folder is an export, even if only it were there.
TextFiles text_files(const Checkpoint& checkpoint, const std::string& path, Family family, std::string_view dtype) {
  const ModelConfig& model = checkpoint.config.model;
  const auto tokenizer = checkpoint.tokenizer.empty() ? nullptr : tokenizer_from_json(checkpoint.tokenizer, path);
  const TextEnds ends = tokenizer ? text_ends(*tokenizer) : TextEnds{};
  TextFiles files = {{kCard, model_card(checkpoint, path, tokenizer.get(), family, dtype)},
                     {"config.json", as_text(config_json(model, family, dtype, ends))},
                     {"generation_config.json", as_text(generation_json(ends))}};
  if (!tokenizer) return files;
  files.emplace_back(kTokenizer, hugging_face_json(*tokenizer));
  files.emplace_back(kTokenizerConfig, as_text(tokenizer_config_json(*tokenizer, model.block_size)));
  return files;
}

}  // namespace

void export_hugging_face(const ExportOptions& options) {
  const std::string& folder = options.output;
  require_free(folder);
  const Checkpoint checkpoint = load_checkpoint(options.checkpoint, Parts::model);
  const ModelConfig& model = checkpoint.config.model;
  const Family family = family_of(model, options.checkpoint, "transformers");
  const std::string_view dtype = name_of(options.dtype);
  require_dividing_heads(model, family, options.checkpoint);

  create_folders(folder);
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (const auto& [name, text] : text_files(checkpoint, options.checkpoint, family, dtype)) {
    files.push_back(std::make_unique<AtomicFile>(folder + "/" + name));
    files.back()->write(text);
  }
  WeightsInFolder weights(folder, to_hugging_face(model, family, checkpoint.model), type_of(options.dtype),
                          1e9 * options.max_shard_size.value_or(kMaxShardSize));
  if (checkpoint.tokenizer.empty()) {  // an older export's does not belong to this model
    std::error_code ignored;
    for (const char* name : {kTokenizer, kTokenizerConfig}) fs::remove(folder + "/" + name, ignored);
  }
  for (const auto& file : files) file->commit();
  weights.commit();

  log::success(fmt::format("{}: {} parameters in {}, in the form of {}", folder,
                           format_count(static_cast<double>(parameter_count(model))), dtype, name_of(family)));
  if (checkpoint.tokenizer.empty())
    log::warn("the checkpoint has no tokenizer, because its run was given token ids: add the one that made them");
}

void export_model(const ExportOptions& options) {
  switch (options.format) {
    case ExportFormat::hugging_face: return export_hugging_face(options);
    case ExportFormat::gguf: return export_gguf(options);
    case ExportFormat::quantized: return export_quantized(options);
  }
}

}  // namespace gpt::exchange
