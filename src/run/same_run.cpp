#include "gpt/run/same_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/prepare/text_cache.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/special_tokens.h"
#include "gpt/tokenizer/text_error.h"

namespace gpt::run {
namespace {

namespace fs = std::filesystem;

std::string data_name(const DataConfig& data) {
  if (!data.text.empty()) return data.text;
  return data.bin.empty() ? "the installed dataset" : data.bin;
}

// `more`: what else the command of a new run may need.
[[noreturn]] void refuse(const StartingPoint& start, const Config& now, const std::string& why,
                         const std::string& more = "") {
  throw Error(ExitCode::checkpoint,
              fmt::format("{} belongs to another run: {}; restore that run's own settings and data, start anew with "
                          "--restart, which sets the old run aside, or start another one with --output_dir {}{}",
                          start.path, why, next_free_folder(now.output_dir), more));
}

std::string to_text(const config::Change& change) {
  return fmt::format("{}: {} -> {}", change.key, change.before, change.after);
}

void refuse_changes(const StartingPoint& start, const Config& now, const std::vector<std::string>& changes) {
  if (!changes.empty()) refuse(start, now, fmt::format("its configuration differs ({})", fmt::join(changes, ", ")));
}

// Those that decide which tokens a text becomes. They are compared before it is prepared, which may take long.
void require_same_split(const StartingPoint& start, const Config& now) {
  constexpr std::string_view kKeys[] = {"data.text_field",          "data.learn",
                                        "data.chat_template",       "data.trust_markup",
                                        "data.validation_fraction", "data.max_chars"};
  std::vector<std::string> refused;
  for (const config::Change& change : config::difference(start.checkpoint.config, now)) {
    if (std::find(std::begin(kKeys), std::end(kKeys), change.key) != std::end(kKeys))
      refused.push_back(to_text(change));
  }
  refuse_changes(start, now, refused);
}

// How the sequences of an update are cut into micro-batches may change: it depends on the number of processes.
bool is_factor_of_update(const std::string& key) {
  return key == "training.batch_size" || key == "training.gradient_accumulation_steps";
}

int64_t sequences_of_update(const Config& config) {
  return config.training.batch_size * config.training.gradient_accumulation_steps;
}

}  // namespace

std::vector<std::string> require_same_configuration(const StartingPoint& start, const Config& now) {
  std::vector<std::string> accepted, refused;
  const bool has_same_updates = sequences_of_update(start.checkpoint.config) == sequences_of_update(now);
  for (const config::Change& change : config::difference(start.checkpoint.config, now)) {
    if (has_same_updates && is_factor_of_update(change.key)) continue;
    (change.safe_on_resume ? accepted : refused).push_back(to_text(change));
  }
  refuse_changes(start, now, refused);
  return accepted;
}

void announce_changes(const std::vector<std::string>& changes) {
  for (const std::string& change : changes) log::info("changed since the checkpoint: " + change);
}

void require_run_data(const Config& config, const std::string& origin) {
  try {
    config::require_data(config, origin);
  } catch (const Error& error) {
    const std::string& from = config.training.resume_from;
    const std::string folder = checkpoint::names_checkpoint(from)
                                   ? fs::path(checkpoint::checkpoint_file(from)).parent_path()
                                   : fs::path(config.output_dir);
    const std::string path = fs::path(folder) / kEffectiveConfig;
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) throw;
    throw Error(error.code(), fmt::format("{}, or continue this run with --config {}", error.what(), path));
  }
}

DataConfig data_with_cache(const Config& config) {
  DataConfig data = config.data;
  data.cache_dir = prepare::usable_cache(data, config.output_dir + "/prepared");
  return data;
}

data::Corpus load_run_corpus(const Config& config, const std::optional<StartingPoint>& start) {
  const DataConfig data = data_with_cache(config);
  if (!start) return prepare::load_corpus(data, config.sequence_length(), "", config.model.vocab_size);
  const DataConfig& saved = start->checkpoint.config.data;
  const auto refuse_data = [&](const std::string& why) {
    const std::string then = data_name(saved), now = data_name(config.data);
    refuse(*start, config,
           then == now
               ? fmt::format("{} has changed since it began: {}", config.data.bin.empty() ? "the text" : "the bin", why)
               : fmt::format("it was trained on {}, and {} holds other data: {}", then, now, why),
           fmt::format(", and with --init_from {} if it is to begin with the weights of this one", start->path));
  };
  tokenizer::require_same_tokenizer(config.data.tokenizer, start->checkpoint.tokenizer);
  require_same_split(*start, config);
  data::Corpus corpus;
  try {
    corpus = prepare::load_corpus(data, config.sequence_length(), start->checkpoint.tokenizer, config.model.vocab_size,
                                  start->checkpoint.text_format);
  } catch (const tokenizer::UnencodableText& error) { refuse_data(error.what()); } catch (const Error& error) {
    if (error.code() != ExitCode::data || data_name(saved) == data_name(config.data)) throw;
    refuse_data(error.what());
  }
  if (corpus.fingerprint != start->checkpoint.data_fingerprint) {
    refuse_data(fmt::format("{} now has {} training and {} validation tokens", corpus.source,
                            with_commas(corpus.train.size()), with_commas(corpus.validation.size())));
  }
  return corpus;
}

}  // namespace gpt::run
