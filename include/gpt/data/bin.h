// A bin of token ids with what belongs to it: metadata, tokenizer, a second file for validation. Opened once, it gives tokens,
// tokenizer and vocabulary, checked against each other; the ids themselves are not read yet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gpt/data/metadata.h"
#include "gpt/data/token_file.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::data {

struct Bin {
  std::string path;
  std::string validation_path;                                 // empty: the bin holds both parts
  std::string metadata_path;                                   // empty: there is none
  Metadata metadata = {};                                      // vocab_size 0: there is none
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer = {};  // null: not known
  int64_t vocab_size = 0;
  Tokens train = {}, validation = {};
  std::shared_ptr<const void> in_use = {};  // keeps other processes from removing it, where it lies in the text cache
  bool is_split() const { return metadata.train.tokens + metadata.validation.tokens > 0; }
};

struct BinOptions {
  std::string path;
  std::string validation_path = {};  // where validation is a file of its own
  std::string metadata_path = {};    // empty: tokens_bpe_metadata.json beside tokens_bpe.bin, where it is
  double validation_fraction = 0;    // for a bin that is not split: it is cut at training_tokens()
  bool is_prepared = false;          // all that prepare() writes has to be there, and the tokenizer's file unchanged
  // The vocabulary is that of the metadata, else of the tokenizer, else vocab_size. The tokenizer is the saved one, else what
  // `tokenizer` says (as make_tokenizer() takes it), else the one that the metadata name.
  std::shared_ptr<const tokenizer::Tokenizer> saved_tokenizer = {};
  std::string tokenizer = {};
  std::optional<int64_t> vocab_size = {};
  const Bin* main = nullptr;  // a bin to be mixed with this one, which has to share its tokenizer and vocabulary
};

// What lies beside the bin; empty where nothing does. Throws gpt::Error(data).
Metadata read_metadata_of(const BinOptions& options);

// Where gpt-prepare was killed as it put its files there, they are put there first. Throws gpt::Error: data where files are
// missing, contradict each other or are not of the tokenizer; config where the vocabulary is not known.
Bin open_bin(const BinOptions& options);

// The file of the marks, where the bin is of conversations: kMarksFile beside kBinFile.
std::string marks_beside(const std::string& bin);

}  // namespace gpt::data
