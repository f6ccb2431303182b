// The file formats of byte-level BPE vocabularies. What a file asks for and this program does not implement (a
// normalizer, another pre-tokenizer, another model) is refused by its name. Every reader throws gpt::Error(data),
// beginning with `origin`.
#pragma once

#include <string>
#include <string_view>

#include "gpt/tokenizer/bpe.h"

namespace gpt {

// tokenizer.json of Hugging Face tokenizers. What its post-processor puts around a text is not part of the vocabulary:
// ids are those of their encode(text, add_special_tokens=False).
BpeModel parse_tokenizer_json(std::string_view json, const std::string& origin);
std::string tokenizer_json(const BpeModel& model);

// GPT-2's encoder.json (token -> id, bytes in GPT-2's printable alphabet) and vocab.bpe (one merge a line).
BpeModel parse_gpt2_files(std::string_view encoder_json, std::string_view vocab_bpe, const std::string& origin);

// tiktoken's lines of "base64 rank". They say neither how text is split nor which tokens are special: both follow from
// the number of ranks, which has to be cl100k_base's or GPT-2's.
BpeModel parse_tiktoken(std::string_view text, const std::string& origin);

// GPT-2's vocabulary as set-up installed it, hash-checked. Throws gpt::Error(data) with what to run where it is
// missing.
BpeModel gpt2_vocabulary();

}  // namespace gpt
