#include "gpt/train/same_run.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt {
namespace {

std::string data_name(const DataConfig& data) {
  if (!data.text.empty()) return data.text;
  return data.bin.empty() ? "the installed dataset" : data.bin;
}

[[noreturn]] void refuse(const StartingPoint& start, const Config& now, const std::string& why) {
  throw Error(ExitCode::checkpoint,
              fmt::format("{} belongs to another run: {}; restore that run's own settings and data, or start a "
                          "new one with --output_dir {}",
                          start.path, why, next_free_folder(now.output_dir)));
}

}  // namespace

void require_same_configuration(const StartingPoint& start, const Config& now) {
  std::string refused;
  std::vector<std::string> accepted;
  for (const auto& change : config::difference(start.checkpoint.config, now)) {
    const std::string text = fmt::format("{}: {} -> {}", change.key, change.before, change.after);
    if (change.safe_on_resume) {
      accepted.push_back(text);
    } else {
      refused += (refused.empty() ? "" : ", ") + text;
    }
  }
  if (!refused.empty()) refuse(start, now, "its configuration differs (" + refused + ")");
  for (const std::string& change : accepted) log::info("changed since the checkpoint: " + change);
}

Corpus load_run_corpus(const Config& config, const std::optional<StartingPoint>& start) {
  if (!start) return load_corpus(config.data, config.model.block_size, "", config.model.vocab_size);
  const DataConfig& saved = start->checkpoint.config.data;
  const auto refuse_data = [&](const std::string& why) {
    refuse(*start, config, fmt::format("it was trained on {}, and {}", data_name(saved), why));
  };
  require_same_tokenizer(config.data.tokenizer, start->checkpoint.tokenizer);
  Corpus corpus;
  try {
    corpus = load_corpus(config.data, config.model.block_size, start->checkpoint.tokenizer, config.model.vocab_size);
  } catch (const Error& error) {
    // A text that the run's tokenizer cannot encode is not the text that it was made from.
    if (error.code() != ExitCode::data || data_name(saved) == data_name(config.data)) throw;
    refuse_data(error.what());
  }
  if (corpus.fingerprint != start->checkpoint.data_fingerprint) {
    refuse_data(fmt::format("the text, split or tokenizer of {} has changed", corpus.source));
  }
  return corpus;
}

}  // namespace gpt
