// What a run trains on: tokens in two splits and what their ids stand for. prepare/load_corpus.h makes it. LibTorch-free.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpt/data/token_file.h"
#include "gpt/tokenizer/text_format.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::data {

struct Corpus {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  // null for a bin without a tokenizer
  int64_t vocab_size = 0;                                 // every id is below it: the tokenizer's, or the bin's
  Tokens train, validation;                               // validation may be empty
  std::vector<Tokens> sources;                            // what the stages mix, as stage_sources() names it
  bool has_own_split = false;                             // a bin that says which of its tokens are for validation
  bool has_conversations = false;                         // the tokens have marks
  bool has_json_lines = false;                            // so that data.text_field counts
  int64_t validation_bytes = 0;  // bytes of the validation text that is learned, as in the metadata; 0 = not known
  std::optional<int32_t> sample_start;  // what a sample begins behind where it has no prompt
  // The text format of the model that the run began with, in the tokenizer's ids. With conversations it has their chat template.
  std::optional<tokenizer::TextFormat> text_format = {};
  std::string source;       // the path, for messages
  std::string fingerprint;  // hash of ids, split and tokenizer: what a resumed run must find again
  std::vector<std::shared_ptr<const void>> in_use;  // keep other processes from removing what lies in the text cache
};

// The vocabulary of a model for this corpus: `configured` where it is set, otherwise the data's own. Throws
// gpt::Error: config when the configured one is too small for the data, data when that has a single token.
int64_t vocabulary_for(const Corpus& corpus, std::optional<int64_t> configured);

// Bytes of text that those of these ids which are learned stand for, special tokens none: what bits per byte divide by. Nothing where the
// corpus has no tokenizer to ask and no metadata that tells the average.
std::optional<double> text_bytes(const Corpus& corpus, const std::vector<Tokens>& parts);
std::optional<double> text_bytes(const Corpus& corpus, const Tokens& ids);

}  // namespace gpt::data
