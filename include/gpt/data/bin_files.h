// A bin with what belongs to it: metadata, tokenizer, a second file for validation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gpt/data/metadata.h"
#include "gpt/data/token_file.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt {

struct Bin {
  std::string path;
  std::string validation_path;  // empty: the bin holds both parts
  std::string metadata_path;    // empty: there is none
  Metadata metadata = {};       // vocab_size 0: there is none
  bool is_split() const { return metadata.train.tokens + metadata.validation.tokens > 0; }
};

struct Splits {
  Tokens train, validation;
};

// An empty `metadata_path` finds tokens_bpe_metadata.json beside tokens_bpe.bin. Where gpt-prepare was killed as it put its files
// there, they are put there first.
Bin find_bin(const std::string& path, const std::string& validation_path, const std::string& metadata_path);

// Throws gpt::Error(data) where the metadata lack anything that prepare() writes, or the tokenizer's file is another one.
void require_all_of_prepare(const Bin& bin);

// The tokenizer `spec` or, where it is empty, the one that the metadata names; null without either. Throws
// gpt::Error(data) where it is not the one that the bin was made with, or is lost.
std::shared_ptr<const Tokenizer> tokenizer_of(const Bin& bin, std::string spec);

// Metadata, tokenizer or `vocab_size`, whichever is known first. Throws gpt::Error where none is, or they contradict.
int64_t vocabulary_of(const Bin& bin, const Tokenizer* tokenizer, std::optional<int64_t> vocab_size);

// Both parts, their sizes checked against the metadata. What is not split yet is cut at training_tokens().
Splits open_splits(const Bin& bin, double validation_fraction);

}  // namespace gpt
