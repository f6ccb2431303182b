// From the data section of a config to tokens: text or bin in, tokenizer and the two splits out. LibTorch-free.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gpt/config/data_config.h"
#include "gpt/data/token_file.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt {

struct Corpus {
  std::shared_ptr<const Tokenizer> tokenizer;  // null for a bin without a tokenizer
  int64_t vocab_size = 0;     // every id is below it: the tokenizer's, or the bin's
  Tokens train, validation;   // the text's first and last part; validation may be empty
  std::string source;         // the path, for messages
  std::string fingerprint;    // hash of ids, split and tokenizer: what a resumed run must find again
};

// `saved_tokenizer`: the tokenizer JSON of a checkpoint to continue with, or empty. `vocab_size`: model.vocab_size where
// the configuration sets it; a bin without metadata needs it. Throws gpt::Error(data): no such file, not UTF-8, an id
// outside the vocabulary (file, position, id), a split shorter than block_size + 1 (with the arithmetic).
Corpus load_corpus(const DataConfig& config, int64_t block_size, const std::string& saved_tokenizer = {},
                   std::optional<int64_t> vocab_size = {});

// The vocabulary of a model for this corpus: `configured` where it is set, otherwise the data's own. Throws
// gpt::Error(config) when the configured one is too small for the data.
int64_t vocabulary_for(const Corpus& corpus, std::optional<int64_t> configured);

}  // namespace gpt
