// data.document_mask: which token separates the documents of a run's data, and whether there are any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/data_config.h"
#include "gpt/data/corpus.h"

namespace gpt::data {

// The token that begins each document for attention: the end-of-text token of the data's tokenizer, which gpt-prepare puts behind each
// document and which therefore stands before the next; of a tokenizer without one, its begin-of-text token. It belongs to the document
// behind it, as texts begin in gpt-generate and gpt-eval. Nothing where data.document_mask is off. Throws gpt::Error(config) where it
// is on and the tokenizer is not known or has no such token.
std::optional<int32_t> document_separator(const DataConfig& config, const Corpus& corpus);

// What a mask does to these data.
struct MaskedDocuments {
  // "attention stays within a document, which begins with <|endoftext|>; one has about 213 tokens"
  std::string description;
  std::string idle;  // why a mask changes nothing; empty where it changes something
};
// Only the beginning of a large source is looked at.
MaskedDocuments find_documents(const Corpus& corpus, int32_t separator);

}  // namespace gpt::data
