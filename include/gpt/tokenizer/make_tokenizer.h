// The factory: a tokenizer from its name, from a file, or from the JSON that a checkpoint stores.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpt/tokenizer/tokenizer.h"

namespace gpt::tokenizer {

// `spec` is one of
//   char   the vocabulary is the code points of `training_text`, sorted
//   byte   one id per byte
//   gpt2   GPT-2's vocabulary, which the set-up installed
//   bpe:N  byte-level BPE with a vocabulary of N trained on `training_text`
//   FILE   Hugging Face's tokenizer.json, FILE.tiktoken, vocab.bpe with encoder.json beside it, merges.txt with
//          vocab.json beside it, or a saved tokenizer
// Throws gpt::Error: config for an unknown spec, data for a bad file or text that is not UTF-8.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec, std::string_view training_text);

// N for a `spec` bpe:N, nothing for any other. Throws gpt::Error(config) if N is not a number above 0.
std::optional<int64_t> trained_vocabulary(const std::string& spec);

// The inverse of to_json(); also reads Hugging Face's tokenizer.json. `origin` names the source in errors.
std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json, const std::string& origin);

}  // namespace gpt::tokenizer
