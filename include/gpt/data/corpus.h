// From the data section of a config to tokens: text or bin in, tokenizer and the two splits out. LibTorch-free.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/data/token_file.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt {

struct Corpus {
  std::shared_ptr<const Tokenizer> tokenizer;  // null for a bin without a tokenizer
  int64_t vocab_size = 0;        // every id is below it: the tokenizer's, or the bin's
  Tokens train, validation;      // validation may be empty
  std::vector<Tokens> sources;   // what data.stages mixes, as stage_sources() names it; without stages, train alone
  int64_t validation_bytes = 0;  // of its text, as the metadata has it; 0 = not known
  bool separate_files = false;   // validation is a file of its own
  std::string source;            // the path, for messages
  std::string fingerprint;       // hash of ids, split and tokenizer: what a resumed run must find again
  std::vector<std::shared_ptr<const void>> in_use;  // keep other processes from removing what lies in the text cache
};

// What a stage mixes: main alone where it does not say. And what all stages mix, each once, in the order of appearance.
std::vector<std::pair<std::string, double>> mix_of(const Stage& stage);
std::vector<std::string> stage_sources(const DataConfig& config);

// Everything about the data that can be wrong is found here, before the first step. `saved_tokenizer`: the tokenizer JSON
// of a checkpoint to continue with, or empty. `vocab_size`: model.vocab_size where the configuration sets it; a bin that
// has neither metadata nor tokenizer needs it. Throws gpt::Error(data): no such file, a size, dtype or hash that
// contradicts header or metadata, an id outside the vocabulary (file, position, id), a split shorter than block_size + 1
// (with the arithmetic), validation tokens that are training tokens too. What takes long shows its progress, and a signal
// ends it: gpt::Error(interrupted).
Corpus load_corpus(const DataConfig& config, int64_t block_size, const std::string& saved_tokenizer = {},
                   std::optional<int64_t> vocab_size = {});

// The vocabulary of a model for this corpus: `configured` where it is set, otherwise the data's own. Throws
// gpt::Error(config) when the configured one is too small for the data.
int64_t vocabulary_for(const Corpus& corpus, std::optional<int64_t> configured);

// Bytes of text that `ids` stand for, special tokens none: what bits per byte divide by. Nothing where the corpus has no
// tokenizer to ask and no metadata that tells the average.
std::optional<double> text_bytes(const Corpus& corpus, const Tokens& ids);

}  // namespace gpt
