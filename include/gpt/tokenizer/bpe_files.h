// The file formats of byte-level BPE vocabularies. Every reader throws gpt::Error(data), beginning with `origin`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpt/core/file.h"
#include "gpt/tokenizer/bpe_model.h"

namespace gpt::tokenizer {

// The limit for a file: more is neither read nor written.
constexpr SizeLimit kTokenizerSize{"a tokenizer", uint64_t{64} << 20};

// Hugging Face tokenizers' tokenizer.json where it is no more than a vocabulary of bytes with a known split, and what its
// post-processor adds around a text, which is not part of the vocabulary: ids are those of Hugging Face's
// encode(text, add_special_tokens=False). tokenizer_from_json() reads the other kinds too.
BpeModel parse_tokenizer_json(std::string_view json, const std::string& origin);
std::string tokenizer_json(const BpeModel& model);

// GPT-2's encoder.json (token -> id, bytes in GPT-2's printable alphabet) and vocab.bpe (one merge per line).
BpeModel parse_gpt2_files(std::string_view encoder_json, std::string_view vocab_bpe, const std::string& origin);

// tiktoken's lines of "base64 rank". They say neither how text is split nor which tokens are special: both follow from
// the number of ranks, which must be that of cl100k_base or of GPT-2.
BpeModel parse_tiktoken(std::string_view text, const std::string& origin);

// GPT-2's vocabulary as the set-up installed it, hash-checked. Throws gpt::Error(data), saying what to run, if it is
// missing.
BpeModel gpt2_vocabulary();

}  // namespace gpt::tokenizer
