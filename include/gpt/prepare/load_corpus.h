// From the data section of a config to tokens: text or bin in, tokenizer and the two splits out. LibTorch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/data_config.h"
#include "gpt/data/corpus.h"

namespace gpt::prepare {

// Everything about the data that can be wrong is found here, before the first step. `saved_tokenizer`: the tokenizer JSON
// of a checkpoint to continue with, or empty. `vocab_size`: model.vocab_size where the configuration sets it; a bin that
// has neither metadata nor tokenizer needs it. `format`: that of the model which the run begins with; conversations are learned in its chat
// template, or in ChatML where it has none, which the corpus names then. Throws gpt::Error(config) for conversations where there is no
// template that goes with the tokenizer, and gpt::Error(data): no such file, a size, dtype or hash that
// contradicts header or metadata, an id outside the vocabulary (file, position, id), a split shorter than block_size + 1
// (with the arithmetic), validation tokens that are training tokens too. What takes long shows its progress, and a signal
// ends it: gpt::Error(interrupted).
data::Corpus load_corpus(const DataConfig& config, int64_t block_size, const std::string& saved_tokenizer = {},
                         std::optional<int64_t> vocab_size = {},
                         const std::optional<tokenizer::TextFormat>& format = {});

// What the sizes of a run are chosen by, before its text is read.
struct TextEstimate {
  int64_t characters = 0;  // 0 = the configuration names no data
  bool is_utf8 = true;     // as far as the beginnings of the files show
};

// Characters: bytes on the disk, packed files counted four times (text packs to a quarter), a bin of token ids by four characters a
// token, and no more than max_chars. Throws gpt::Error(data) when the files are not there.
TextEstimate estimate_text(const DataConfig& config);

// Whether they are conversations, as far as their beginning shows; false where the files are not there.
bool holds_conversations(const DataConfig& config);

}  // namespace gpt::prepare
