// Our tokenizers as llama.cpp has them. Byte-level BPE is its model "gpt2", as long as it splits text as one of llama.cpp's pre-tokenizers
// does; bytes are such a BPE without merges. BPE of SentencePiece's kind is its model "llama", and so are characters, with a piece for each
// and none longer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/exchange/gguf.h"
#include "gpt/tokenizer/text_format.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::exchange {

struct GgufTokenizer {
  std::string model;                     // tokenizer.ggml.model
  std::string split = {};                // of BPE: tokenizer.ggml.pre
  std::vector<std::string> tokens = {};  // by their ids
  std::vector<int32_t> types = {};       // of each token
  std::vector<std::string> merges = {};  // of BPE
  std::vector<float> scores = {};        // of pieces; empty: none is better than another
  bool adds_space = false;               // to pieces, before a text
  tokenizer::TextFormat format = {};     // begin and ends are there
  // llama.cpp always has such a token: id 2 or 11 unless another one is named. So a vocabulary without one gets it as its last token.
  bool adds_end = false;
};

// `vocab_size` is the model's: ids that the tokenizer does not have are unused tokens. Throws gpt::Error(checkpoint), beginning with
// `origin`, for a tokenizer that would have other ids there.
GgufTokenizer gguf_tokenizer(const tokenizer::Tokenizer& tokenizer, const tokenizer::TextFormat& format,
                             int64_t vocab_size, const std::string& origin);

// Whether it is a byte-level BPE with this split of llama.cpp's.
bool splits_as(const tokenizer::Tokenizer& tokenizer, std::string_view split);

void add_tokenizer(GgufMetadata& metadata, const GgufTokenizer& tokenizer);

}  // namespace gpt::exchange
