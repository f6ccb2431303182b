#include "gpt/run/initial_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/file_names.h"
#include "gpt/config/load.h"
#include "gpt/config/output_folder.h"
#include "gpt/config/rules.h"
#include "gpt/config/value.h"
#include "gpt/container/container.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/missing_model.h"
#include "gpt/exchange/texts_of_model.h"
#include "gpt/exchange/weights.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/run/folder.h"
#include "gpt/run/match_vocabulary.h"
#include "gpt/run/same_run.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::run {
namespace {

constexpr double kCharactersOfBpe = 4;

double characters_per_token(std::string_view tokenizer, const std::string& path) {
  const bool is_bpe = tokenizer.empty() || tokenizer::tokenizer_from_json(tokenizer, path)->name() == "bpe";
  return is_bpe ? kCharactersOfBpe : 1;
}

// Wherever the program runs. A folder of Hugging Face's that is gone is known from the run that began with it.
std::string absolute_initial(const std::string& path, const std::string& output_dir) {
  std::error_code ignored;
  std::string absolute = std::filesystem::weakly_canonical(path, ignored).string();
  if (exchange::is_hugging_face(path)) return absolute;
  const bool is_gone = !std::filesystem::exists(path, ignored);
  const std::optional<Config> saved = is_gone ? config::left_configuration(output_dir) : std::nullopt;
  if (saved && saved->training.init_from == absolute) return absolute;
  if (const std::string why = exchange::why_missing(path); !why.empty() && !holds_checkpoint(output_dir))
    throw Error(ExitCode::checkpoint, fmt::format("training.init_from: {}", why));
  return checkpoint::absolute_checkpoint(path);
}

// Nothing where it cannot be read and need not be.
std::optional<ModelOfFile> read_model_unless_done(const std::string& path, const std::string& output_dir) {
  try {
    return read_model(path);
  } catch (const Error& error) {
    if (holds_checkpoint(output_dir)) return std::nullopt;
    throw Error(ExitCode::checkpoint, fmt::format("training.init_from: {}", error.what()));
  }
}

// Calls visit(key, member) for what says which positions a token sees.
template <class Visit>
void for_each_key_of_attention(const Visit& visit) {
  visit("model.attention", &ModelConfig::attention);
  visit("model.attention_block", &ModelConfig::attention_block);
  visit("model.attention_top_blocks", &ModelConfig::attention_top_blocks);
  visit("model.attention_window", &ModelConfig::attention_window);
  visit("model.window_pattern", &ModelConfig::window_pattern);
  visit("model.last_layer_full", &ModelConfig::last_layer_full);
}

// What may differ from the model of a checkpoint, because it changes neither weights nor shapes.
bool may_differ(const std::string& key) {
  bool may = key == "model.preset" || key == "model.dropout";
  for_each_key_of_attention([&](const char* of_attention, auto) { may = may || key == of_attention; });
  return may;
}

// The first positions of a model are one for shorter sequences, learned or rotated.
bool is_shorter(const std::string& key, const Config& written, const Config& checkpoint) {
  return key == "model.block_size" && written.model.block_size < checkpoint.model.block_size;
}

// Those beyond it are of tokens that a chat template needs.
bool has_more_tokens(const std::string& key, const Config& written, const Config& checkpoint) {
  return key == "model.vocab_size" && checkpoint.model.vocab_size &&
         written.model.vocab_size > checkpoint.model.vocab_size;
}

// "model.n_layer 3 (the checkpoint has 2)" for each row of the model that was written out, by itself or by a preset, and differs.
std::vector<std::string> contradictions(Config written, const config::Origins& origins, Config checkpoint) {
  checkpoint.model.n_kv_head = checkpoint.model.kv_heads();  // auto and the number that it stands for are the same
  checkpoint.model.n_head_dim = checkpoint.model.head_dim();
  checkpoint.model.n_hidden = checkpoint.model.hidden();
  const bool is_preset = origins.count("model.preset") && written.model.preset != Preset::automatic &&
                         written.model.preset != Preset::none;
  const std::vector<config::Option> rows = config::options(written), own = config::options(checkpoint);
  std::vector<std::string> found;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string key = rows[i].key(), value = config::value_text(rows[i].target);
    const bool is_written = rows[i].section == "model" && (origins.count(key) || is_preset);
    if (!is_written || may_differ(key) || value == "auto" || is_shorter(key, written, checkpoint) ||
        has_more_tokens(key, written, checkpoint))
      continue;
    const std::string theirs = config::value_text(own[i].target);
    if (value != theirs) found.push_back(fmt::format("{} {} (the checkpoint has {})", key, value, theirs));
  }
  return found;
}

// Whether data.tokenizer was written out and names another tokenizer than that of the weights. `own`: JSON, or empty.
bool asks_for_other_tokenizer(const Config& config, const config::Origins& origins, const std::string& own) {
  const auto written = origins.find("data.tokenizer");
  const std::string& spec = config.data.tokenizer;
  if (written == origins.end()) return false;
  if (spec == "char" && !written->second.starts_with("--"))
    return false;  // the default, which every effective_config.yaml has
  if (own.empty()) return true;
  const auto tokenizer = tokenizer::tokenizer_from_json(own, config.training.init_from);
  if (spec == "char" || spec == "byte") return tokenizer->name() != spec;
  if (const auto size = tokenizer::trained_vocabulary(spec))
    return tokenizer->name() != "bpe" || tokenizer->vocab_size() != *size;
  return tokenizer::make_tokenizer(spec, {})->to_json() != own;
}

// The rows of learned positions that the run has.
void keep_positions(InitialWeights& initial, int64_t positions) {
  for (auto& [name, tensor] : initial.model) {
    if (name != "transformer.wpe.weight" || tensor.size(0) <= positions) continue;
    tensor = tensor.detach().narrow(0, 0, positions).clone();
    initial.changed.insert(name);
  }
}

void note_changed_vocabulary(InitialWeights& initial, ModelConfig model) {
  for (const layout::ParameterRow& row : layout::parameter_table(model))
    if (layout::is_vocabulary(row.role)) initial.changed.insert(row.name);
}

// The rows that the run keeps in few bits and that can be packed as they are read. A vocabulary may be another one in the run.
std::vector<layout::ParameterRow> rows_to_pack(Config config) {
  if (!config.model.vocab_size) config.model.vocab_size = 1;  // no name follows from it
  std::vector<layout::ParameterRow> rows = layout::parameter_table(config.model, config.training.tuning);
  std::erase_if(rows, [](const layout::ParameterRow& row) { return layout::is_vocabulary(row.role); });
  return rows;
}

// The weights of `initial` for the tokenizer of the corpus.
void adopt_vocabulary(InitialWeights& initial, ModelConfig model, const data::Corpus& corpus) {
  if (initial.tokenizer.empty() || !corpus.tokenizer) {
    throw Error(ExitCode::config,
                fmt::format("data.tokenizer: the rows of {} cannot be matched with another tokenizer's, because {} has "
                            "none; leave data.tokenizer out",
                            initial.path, initial.tokenizer.empty() ? "it" : corpus.source));
  }
  model.vocab_size = corpus.vocab_size;
  const auto own = tokenizer::tokenizer_from_json(initial.tokenizer, initial.path);
  const auto [kept, added, dropped] = match_vocabulary(initial.model, model, *own, *corpus.tokenizer);
  note_changed_vocabulary(initial, model);
  log::info(
      fmt::format("Another tokenizer than that of {}: {} keep the rows of tokens with the same text, {} new ones "
                  "begin with the mean of all, and {} old ones are left out",
                  initial.path, plural(kept, "token"), with_commas(added), with_commas(dropped)));
  if (initial.text_format && !initial.text_format->chat_template.empty())
    log::warn("the chat template of the model is left out, because it was made for the tokens of its own tokenizer");
  initial.text_format.reset();
  initial.tokenizer = corpus.tokenizer->to_json();
  initial.changes_tokenizer = false;
}

// Rows for the tokens that the corpus has beyond those of the weights, and for a larger vocabulary.
void adopt_more_tokens(InitialWeights& initial, ModelConfig& model, const data::Corpus& corpus) {
  const auto own =
      initial.tokenizer.empty() ? nullptr : tokenizer::tokenizer_from_json(initial.tokenizer, initial.path);
  const int64_t from = own ? own->vocab_size() : initial.vocab_size,
                tokens = own && corpus.tokenizer ? corpus.tokenizer->vocab_size() : from;
  model.vocab_size = std::max(*model.vocab_size, tokens);
  if (tokens == from && *model.vocab_size == initial.vocab_size) return;
  extend_vocabulary(initial.model, model, from, tokens);
  note_changed_vocabulary(initial, model);
  initial.vocab_size = *model.vocab_size;
  if (tokens == from) return;
  log::info(fmt::format("The rows of {} begin with the mean of all others", plural(tokens - from, "new token")));
  initial.tokenizer = corpus.tokenizer->to_json();
}

// The model's. Where the documents of the text are separated by another token than those at which its texts end, they end there, too.
std::optional<tokenizer::TextFormat> format_for(const data::Corpus& corpus) {
  std::optional<tokenizer::TextFormat> format = corpus.text_format;
  if (!format || !corpus.tokenizer || corpus.has_conversations) return format;
  const std::optional<int32_t> separator = corpus.tokenizer->end_of_text();
  if (!separator || corpus.sample_start != separator) return format;
  const int32_t end = separator.value();
  if (std::ranges::find(format->ends, end) == format->ends.end()) format->ends.push_back(end);
  return format;
}

}  // namespace

ModelOfFile read_model(const std::string& path) {
  if (exchange::is_hugging_face(path)) {
    const exchange::ForeignModel foreign = exchange::read_foreign_model(path);
    return {foreign.model, characters_per_token(foreign.tokenizer, path), foreign.tokenizer};
  }
  const container::ContainerReader file(path);
  Config config;
  config::read_yaml(file.text("config.yaml"), path + ": config.yaml", config);
  std::string tokenizer(file.text("tokenizer.json"));
  const double characters = characters_per_token(tokenizer, path);
  return {config.model, characters, std::move(tokenizer)};
}

parameters::NamedTensors read_weights(const std::string& path, const ModelConfig& model) {
  if (!exchange::is_hugging_face(path)) return checkpoint::load_checkpoint(path, checkpoint::Parts::model).model;
  return exchange::read_weights(path, model, *exchange::read_foreign_model(path).family);
}

double take_model(Config& config, const config::Origins& origins) {
  std::string& path = config.training.init_from;
  path = absolute_initial(path, config.output_dir);
  std::optional<ModelOfFile> initial = read_model_unless_done(path, config.output_dir);
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
  if (origins.count("model.block_size")) config.model.block_size = written.block_size;
  if (written.vocab_size > config.model.vocab_size && origins.count("model.vocab_size"))
    config.model.vocab_size = written.vocab_size;
  for_each_key_of_attention([&](const char* key, auto member) {
    if (origins.count(key)) config.model.*member = written.*member;
  });
  Config of_model;
  of_model.model = config.model;
  if (const auto refusal = config::find_refusal(of_model))
    throw Error(ExitCode::config, fmt::format("training.init_from: with the model of {}, {}", path, refusal->text()));
  if (!asks_for_other_tokenizer(config, origins, initial->tokenizer)) return initial->characters_per_token;
  config.model.vocab_size.reset();
  return config.data.tokenizer == "char" || config.data.tokenizer == "byte" ? 1 : kCharactersOfBpe;
}

InitialWeights read_initial_weights(const Config& config, const config::Origins& origins) {
  const std::string& path = config.training.init_from;
  parameters::RowPacker packer(rows_to_pack(config));
  const auto base = config.training.tuning.lora.is_on() ? std::optional(checkpoint::describe_base(path)) : std::nullopt;
  if (!exchange::is_hugging_face(path)) {
    InitialWeights initial = initial_weights(checkpoint::load_checkpoint(path, packer), config, origins);
    initial.base = base, initial.frozen = std::move(packer.matrices);
    return initial;
  }
  exchange::ForeignModel foreign = exchange::read_foreign_model(path);
  foreign.model.vocab_multiple = config.model.vocab_multiple;
  InitialWeights initial{path, std::nullopt, exchange::read_weights(path, foreign.model, *foreign.family, &packer),
                         std::move(foreign.tokenizer)};
  initial.base = base, initial.frozen = std::move(packer.matrices);
  keep_positions(initial, config.model.block_size);
  initial.vocab_size = *foreign.model.vocab_size;
  initial.changes_tokenizer = asks_for_other_tokenizer(config, origins, initial.tokenizer);
  initial.text_format = std::move(foreign.text_format);
  for (const std::string& note : foreign.notes) log::warn(note);
  return initial;
}

InitialWeights initial_weights(checkpoint::Checkpoint checkpoint, const Config& config,
                               const config::Origins& origins) {
  InitialWeights initial{config.training.init_from, checkpoint.step, std::move(checkpoint.model),
                         std::move(checkpoint.tokenizer)};
  initial.vocab_size = *checkpoint.config.model.vocab_size;
  initial.text_format = std::move(checkpoint.text_format);
  keep_positions(initial, config.model.block_size);
  initial.changes_tokenizer = asks_for_other_tokenizer(config, origins, initial.tokenizer);
  return initial;
}

data::Corpus load_corpus_to_measure(Config& config) {
  const bool has_texts =
      config.data.bin.empty() && config.model.vocab_size;  // without a vocabulary it is another tokenizer's
  std::optional<exchange::TextsOfModel> own;
  if (has_texts && !config.training.init_from.empty()) own = exchange::texts_of_model(config.training.init_from);
  const std::optional<tokenizer::TextFormat> format = own ? std::optional(own->format) : std::nullopt;
  data::Corpus corpus = prepare::load_corpus(config.data, config.sequence_length(), own ? own->tokenizer : "",
                                             config.model.vocab_size, format);
  if (own) config.model.vocab_size = std::max(*config.model.vocab_size, corpus.vocab_size);  // with tokens for turns
  return corpus;
}

data::Corpus load_corpus_for(InitialWeights& initial, Config& config) {
  if (initial.changes_tokenizer) {
    data::Corpus corpus = prepare::load_corpus(data_with_cache(config), config.sequence_length(), "", std::nullopt);
    adopt_vocabulary(initial, config.model, corpus);
    return corpus;
  }
  if (initial.tokenizer.empty() && config.data.bin.empty()) {
    throw Error(
        ExitCode::data,
        fmt::format("training.init_from: {} has no tokenizer to encode a text with{}; name ids of the same kind with "
                    "data.bin",
                    initial.path,
                    initial.step ? ", because its run was given token ids alone" : ": there is no tokenizer.json"));
  }
  data::Corpus corpus = prepare::load_corpus(data_with_cache(config), config.sequence_length(), initial.tokenizer,
                                             config.model.vocab_size, initial.text_format);
  corpus.text_format = format_for(corpus);
  adopt_more_tokens(initial, config.model, corpus);
  const int64_t vocab_size = *config.model.vocab_size;
  if (corpus.vocab_size <= vocab_size) return corpus;
  throw Error(ExitCode::data,
              fmt::format("{} has a vocabulary of {}, and the model of training.init_from: {} one of {}; name the text "
                          "itself with data.text, which is encoded with the checkpoint's tokenizer",
                          corpus.source, corpus.vocab_size, initial.path, vocab_size));
}

}  // namespace gpt::run
