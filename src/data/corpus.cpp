#include "gpt/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/core/error.h"

namespace gpt::data {

namespace {

int64_t count_learned(const Tokens& ids) {
  if (!ids.has_marks()) return ids.size();
  return std::count_if(ids.marks(), ids.marks() + ids.size(),
                       [](uint8_t mark) { return (mark & TokenMark::kLearned) != 0; });
}

}  // namespace

std::optional<double> text_bytes(const Corpus& corpus, const Tokens& ids) {
  return text_bytes(corpus, std::vector<Tokens>{ids});
}

std::optional<double> text_bytes(const Corpus& corpus, const std::vector<Tokens>& parts) {
  if (!corpus.tokenizer) {
    if (corpus.validation_bytes == 0) return std::nullopt;
    const double bytes_per_token =
        static_cast<double>(corpus.validation_bytes) / static_cast<double>(count_learned(corpus.validation));
    double tokens = 0;
    for (const Tokens& ids : parts) tokens += static_cast<double>(count_learned(ids));
    return bytes_per_token * tokens;
  }
  std::vector<int32_t> bytes = corpus.tokenizer->text_bytes();
  bytes.resize(static_cast<size_t>(corpus.vocab_size));  // ids that only a padded vocabulary has stand for nothing
  int64_t sum = 0;
  for (const Tokens& ids : parts) {
    for (int64_t i = 0; i < ids.size(); ++i)
      if (ids.is_learned(i)) sum += bytes[ids[i]];
  }
  return static_cast<double>(sum);
}

int64_t vocabulary_for(const Corpus& corpus, std::optional<int64_t> configured) {
  if (corpus.vocab_size < 2) {
    throw Error(ExitCode::data,
                fmt::format("{}: its vocabulary has a single token, so that there is nothing to learn from it",
                            corpus.source));
  }
  if (!configured) return corpus.vocab_size;
  if (*configured >= corpus.vocab_size) return *configured;
  throw Error(ExitCode::config,
              fmt::format("model.vocab_size {} is too small for {}, which has {} tokens: set it to auto, or to {} "
                          "or more",
                          *configured, corpus.source, corpus.vocab_size, corpus.vocab_size));
}

}  // namespace gpt::data
