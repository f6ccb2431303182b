#include "gpt/run/initial_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/file_names.h"
#include "gpt/config/load.h"
#include "gpt/config/output_folder.h"
#include "gpt/config/value.h"
#include "gpt/container/container.h"
#include "gpt/core/error.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/weights.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/run/folder.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::run {
namespace {

constexpr double kCharactersOfBpe = 4;

double characters_per_token(std::string_view tokenizer, const std::string& path) {
  const bool is_bpe = tokenizer.empty() || tokenizer_from_json(tokenizer, path)->name() == "bpe";
  return is_bpe ? kCharactersOfBpe : 1;
}

// What of a model is known without its tensors.
struct InitialModel {
  ModelConfig model;
  double characters_per_token = 1;
};

InitialModel read_model(const std::string& path) {
  if (exchange::is_hugging_face(path)) {
    const exchange::ForeignModel foreign = exchange::read_foreign_model(path);
    return {foreign.model, characters_per_token(foreign.tokenizer, path)};
  }
  const ContainerReader file(path);
  Config config;
  config::read_yaml(file.text("config.yaml"), path + ": config.yaml", config);
  return {config.model, characters_per_token(file.text("tokenizer.json"), path)};
}

// Wherever the program runs. A folder of Hugging Face's that is gone is known from the run that began with it.
std::string absolute_initial(const std::string& path, const std::string& output_dir) {
  std::error_code ignored;
  std::string absolute = std::filesystem::weakly_canonical(path, ignored).string();
  if (exchange::is_hugging_face(path)) return absolute;
  const bool is_gone = !std::filesystem::exists(path, ignored);
  const std::optional<Config> saved = is_gone ? config::left_configuration(output_dir) : std::nullopt;
  return saved && saved->training.init_from == absolute ? absolute : absolute_checkpoint(path);
}

// Nothing where it cannot be read and need not be.
std::optional<InitialModel> read_model_unless_done(const std::string& path, const std::string& output_dir) {
  try {
    return read_model(path);
  } catch (const Error& error) {
    if (holds_checkpoint(output_dir)) return std::nullopt;
    throw Error(ExitCode::checkpoint, fmt::format("training.init_from: {}", error.what()));
  }
}

// "model.n_layer 3 (the checkpoint has 2)" for each row of the model that was written out, by itself or by a preset, and differs.
std::vector<std::string> contradictions(Config written, const config::Origins& origins, Config checkpoint) {
  checkpoint.model.n_kv_head = checkpoint.model.kv_heads();  // auto and the number that it stands for are the same
  checkpoint.model.n_hidden = checkpoint.model.hidden();
  const bool is_preset = origins.count("model.preset") && written.model.preset != Preset::automatic &&
                         written.model.preset != Preset::none;
  const std::vector<config::Option> rows = config::options(written), own = config::options(checkpoint);
  std::vector<std::string> found;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string key = rows[i].key(), value = config::value_text(rows[i].target);
    const bool is_written = rows[i].section == "model" && (origins.count(key) || is_preset);
    if (!is_written || key == "model.preset" || key == "model.dropout" || value == "auto") continue;
    const std::string theirs = config::value_text(own[i].target);
    if (value != theirs) found.push_back(fmt::format("{} {} (the checkpoint has {})", key, value, theirs));
  }
  return found;
}

void require_tokenizer_of(const InitialWeights& initial, const std::string& spec, bool is_flag) {
  if (spec == "char" && !is_flag) return;  // the default, which every effective_config.yaml has
  const auto own = initial.tokenizer.empty() ? nullptr : tokenizer_from_json(initial.tokenizer, initial.path);
  const auto is_same = [&] {
    if (!own) return false;
    if (spec == "char" || spec == "byte") return own->name() == spec;
    if (const auto size = trained_vocabulary(spec)) return own->name() == "bpe" && own->vocab_size() == *size;
    return make_tokenizer(spec, {})->to_json() == initial.tokenizer;
  };
  if (is_same()) return;
  throw Error(
      ExitCode::config,
      fmt::format("data.tokenizer: {} is not the tokenizer of training.init_from: {}, whose weights know only its own "
                  "ids; leave data.tokenizer out",
                  spec, initial.path));
}

void require_written_tokenizer(const InitialWeights& initial, const Config& config, const config::Origins& origins) {
  const auto written = origins.find("data.tokenizer");
  if (written != origins.end()) require_tokenizer_of(initial, config.data.tokenizer, written->second.starts_with("--"));
}

}  // namespace

double take_model(Config& config, const config::Origins& origins) {
  std::string& path = config.training.init_from;
  path = absolute_initial(path, config.output_dir);
  std::optional<InitialModel> initial = read_model_unless_done(path, config.output_dir);
  if (!initial) return 1;
  if (exchange::is_hugging_face(path))
    initial->model.vocab_multiple = config.model.vocab_multiple;  // padding is ours alone
  Config checkpoint;
  checkpoint.model = initial->model;
  if (const auto found = contradictions(config, origins, checkpoint); !found.empty()) {
    throw Error(
        ExitCode::config,
        fmt::format("training.init_from: {} has another model: {}; leave such keys out, since the sizes come from the "
                    "checkpoint",
                    path, fmt::join(found, ", ")));
  }
  const ModelConfig written = std::exchange(config.model, initial->model);
  config.model.preset = written.preset;
  config.model.dropout = written.dropout;
  return initial->characters_per_token;
}

InitialWeights read_initial_weights(const Config& config, const config::Origins& origins) {
  const std::string& path = config.training.init_from;
  if (!exchange::is_hugging_face(path)) return initial_weights(load_checkpoint(path), config, origins);
  exchange::ForeignModel foreign = exchange::read_foreign_model(path);
  foreign.model.vocab_multiple = config.model.vocab_multiple;
  InitialWeights initial{path, std::nullopt, exchange::read_weights(path, foreign.model, foreign.family),
                         std::move(foreign.tokenizer)};
  require_written_tokenizer(initial, config, origins);
  return initial;
}

InitialWeights initial_weights(Checkpoint checkpoint, const Config& config, const config::Origins& origins) {
  InitialWeights initial{config.training.init_from, checkpoint.step, std::move(checkpoint.model),
                         std::move(checkpoint.tokenizer)};
  require_written_tokenizer(initial, config, origins);
  return initial;
}

Corpus load_corpus_for(const InitialWeights& initial, const Config& config) {
  if (initial.tokenizer.empty() && config.data.bin.empty()) {
    throw Error(
        ExitCode::data,
        fmt::format("training.init_from: {} has no tokenizer to encode a text with{}; name ids of the same kind with "
                    "data.bin",
                    initial.path,
                    initial.step ? ", because its run was given token ids alone" : ": there is no tokenizer.json"));
  }
  const int64_t vocab_size = *config.model.vocab_size;
  Corpus corpus = load_corpus(config.data, config.model.block_size, initial.tokenizer, vocab_size);
  if (corpus.vocab_size <= vocab_size) return corpus;
  throw Error(ExitCode::data,
              fmt::format("{} has a vocabulary of {}, and the model of training.init_from: {} one of {}; name the text "
                          "itself with data.text, which is encoded with the checkpoint's tokenizer",
                          corpus.source, corpus.vocab_size, initial.path, vocab_size));
}

}  // namespace gpt::run
