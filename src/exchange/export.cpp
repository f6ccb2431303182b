#include "gpt/exchange/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/checkpoint/averages.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/adapter_import.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/model_card.h"
#include "gpt/exchange/text_format_files.h"
#include "gpt/exchange/tokenizer_files.h"
#include "gpt/exchange/weights.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "moved_scales.h"

namespace gpt::exchange {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char *kConfig = "config.json", *kTokenizer = "tokenizer.json",
                     *kTokenizerConfig = "tokenizer_config.json";

bool holds_export(const std::string& folder) {
  constexpr SizeLimit kCardSize{"a model card", 1 << 20};
  std::error_code ignored;
  const std::string card = folder + "/" + kModelCard;
  return fs::is_regular_file(card, ignored) && fs::file_size(card, ignored) <= kCardSize.bytes &&
         is_model_card(read_file(card, ExitCode::config, kCardSize));
}

void require_dividing_heads(const ModelConfig& model, const std::string& path) {
  const std::string why = heads_that_do_not_divide(model);
  if (why.empty()) return;
  throw Error(ExitCode::checkpoint,
              fmt::format("{}: transformers has no model of this form: {}; llama.cpp takes it: add --format gguf", path,
                          why));
}

// Other programs that read such a folder, where they do not compute what is in it.
void say_who_differs(const ModelConfig& model, const Family& family) {
  std::vector<std::string> programs;
  const auto add = [&](const char* program, std::span<const Limit> limits) {
    if (const std::string why = limit_of_reader(model, limits); !why.empty())
      programs.push_back(fmt::format("{} ({})", program, why));
  };
  add("CTranslate2", family.ctranslate2_limits);
  add("mlx-lm", family.mlx_lm_limits);
  if (!programs.empty()) log::info(fmt::format("transformers computes this model, but not {}", enumerated(programs)));
}

std::string as_text(const ordered_json& json) { return json.dump(2) + "\n"; }

using TextFiles = std::vector<std::pair<std::string, std::string>>;  // name and text

TextFiles tokenizer_files(const checkpoint::Checkpoint& checkpoint, const tokenizer::Tokenizer& tokenizer,
                          const tokenizer::TextFormat& format) {
  const int64_t block_size = checkpoint.config.model.block_size;
  return {{kTokenizer, hugging_face_json(tokenizer)},
          {kTokenizerConfig, as_text(tokenizer_config_json(tokenizer, format, block_size))}};
}

// The card comes first: it says that the folder is an export, even if only it were there. Without config.json, which comes last, the folder
// is no model.
TextFiles text_files(const checkpoint::Checkpoint& checkpoint, const ExportOptions& options, const Family& family) {
  const std::string& path = options.checkpoint;
  const std::string dtype(name_of(options.dtype));
  const std::string weights = options.averages ? dtype + ", averages (training.ema_decay)" : dtype;
  const auto tokenizer =
      checkpoint.tokenizer.empty() ? nullptr : tokenizer::tokenizer_from_json(checkpoint.tokenizer, path);
  const tokenizer::TextFormat format = tokenizer ? tokenizer::text_format_of(checkpoint.text_format, *tokenizer)
                                                 : checkpoint.text_format.value_or(tokenizer::TextFormat());
  TextFiles files = {{kModelCard, model_card(checkpoint, path, tokenizer.get(), family, weights)},
                     {"generation_config.json", as_text(generation_config_json(format))}};
  if (tokenizer)
    for (auto& file : tokenizer_files(checkpoint, *tokenizer, format)) files.push_back(std::move(file));
  if (!format.chat_template.empty()) files.emplace_back(kChatTemplateFile, format.chat_template);
  files.emplace_back(kConfig, as_text(config_json(checkpoint.config.model, family, dtype, format)));
  return files;
}

// What an older export has and this one has not does not belong to this model.
void remove_others(const std::string& folder, const TextFiles& files) {
  for (const char* name : {kTokenizer, kTokenizerConfig, kChatTemplateFile}) {
    const bool is_written =
        std::any_of(files.begin(), files.end(), [&](const auto& file) { return file.first == name; });
    std::error_code ignored;
    if (!is_written) fs::remove(folder + "/" + name, ignored);
  }
}

// No longer a model, until the new config.json has its name. The next file that gets one makes that durable.
void take_away_model(const std::string& folder) {
  const std::string path = folder + "/" + kConfig;
  std::error_code error;
  if (!fs::remove(path, error) && error) throw_unwritable(path, "unlink", error.value());
}

std::string written_json(const ExportOptions& options) {
  std::vector<std::string> files;
  if (options.format == ExportFormat::hugging_face) {
    for (const std::string& name : names_in(options.output)) files.push_back(options.output + "/" + name);
  } else {
    files.push_back(options.output);
  }
  uintmax_t bytes = 0;
  for (const std::string& file : files) bytes += fs::file_size(file);
  const ordered_json object{{"output", options.output},
                            {"dtype", name_of(options.dtype)},
                            {"bytes", bytes},
                            {"files", std::move(files)}};
  return object.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

at::ScalarType weight_type(ExportDtype dtype) {
  if (dtype == ExportDtype::bfloat16) return at::kBFloat16;
  return dtype == ExportDtype::float16 ? at::kHalf : at::kFloat;
}

checkpoint::Checkpoint load_weights(const ExportOptions& options, checkpoint::Parts parts) {
  return options.averages ? checkpoint::load_averages(options.checkpoint, parts)
                          : checkpoint::load_checkpoint(options.checkpoint, parts);
}

void require_free_folder(const std::string& folder, bool is_for_adapter) {
  std::error_code ignored;
  if (!exists(folder)) return;
  if (!fs::is_directory(folder, ignored))
    throw Error(ExitCode::config,
                fmt::format("--output {}: it is a file, and a folder is needed; name another one, or add --format gguf",
                            folder));
  sweep_unfinished_files(folder);
  const auto [wanted, held] =
      is_for_adapter ? std::pair("an adapter", "a whole model") : std::pair("a whole model", "an adapter");
  const bool holds_other = is_for_adapter ? exists(folder + "/" + kConfig) : holds_adapter(folder);
  const bool is_export = holds_export(folder);
  if (is_export && holds_other)
    throw Error(ExitCode::config,
                fmt::format("--output {}: the folder holds {}, which {} does not replace; name another one", folder,
                            held, wanted));
  if (is_export || names_in(folder).empty()) return;
  throw Error(ExitCode::config,
              fmt::format("--output {}: the folder holds something else than an export; name one that is empty or new",
                          folder));
}

void write_hugging_face(const ExportOptions& options, const checkpoint::Checkpoint& own) {
  const checkpoint::Checkpoint checkpoint = with_scales_moved(own);
  const std::string& folder = options.output;
  require_free_folder(folder);
  const ModelConfig& model = checkpoint.config.model;
  const Family& family = family_of(model, options.checkpoint, "transformers");
  const std::string_view dtype = name_of(options.dtype);
  require_dividing_heads(model, options.checkpoint);

  create_folders(folder);
  const TextFiles texts = text_files(checkpoint, options, family);
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (const auto& [name, text] : texts) {
    files.push_back(std::make_unique<AtomicFile>(folder + "/" + name));
    files.back()->write(text);
  }
  WeightsInFolder weights(folder, to_hugging_face(model, family, checkpoint.model), weight_type(options.dtype),
                          1e9 * options.max_shard_size.value_or(kMaxShardSize));
  take_away_model(folder);
  for (size_t i = 0; i + 1 < files.size(); ++i) files[i]->commit();
  remove_others(folder, texts);
  weights.commit();
  files.back()->commit();

  log::success(fmt::format("{}: {} parameters in {}, in the form of {}", folder,
                           format_count(static_cast<double>(layout::parameter_count(model))), dtype, family.name));
  say_who_differs(model, family);
  const auto tokenizer =
      checkpoint.tokenizer.empty() ? nullptr : tokenizer::tokenizer_from_json(checkpoint.tokenizer, options.checkpoint);
  if (tokenizer && !is_known_to_auto_tokenizer(*tokenizer, family))
    log::warn(
        fmt::format("AutoTokenizer of transformers splits text as {0} does for a model of {0}'s form, whatever the "
                    "tokenizer's file says: load this one with PreTrainedTokenizerFast.from_pretrained",
                    family.name));
  if (checkpoint.tokenizer.empty())
    log::warn("the checkpoint has no tokenizer, because its run was given token ids: add the one that made them");
}

void export_hugging_face(const ExportOptions& options) {
  require_free_folder(options.output);
  write_hugging_face(options, load_weights(options));
}

void export_model(const ExportOptions& options) {
  switch (options.format) {
    case ExportFormat::hugging_face: options.adapter ? export_peft(options) : export_hugging_face(options); break;
    case ExportFormat::gguf: options.adapter ? export_gguf_adapter(options) : export_gguf(options); break;
    case ExportFormat::quantized: export_quantized(options); break;
  }
  if (options.json) print(written_json(options));
}

}  // namespace gpt::exchange
