// A tokenizer.json that stands for a BPE of SentencePiece's, such as those of Llama 2, Mistral and Gemma, as llama.cpp has it: pieces with
// scores, of which the pair with the best one is joined first, and bytes for what has no piece.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gpt::exchange {

struct SentencePieces {
  std::vector<std::string> tokens;  // by their ids; empty: unused
  std::vector<int32_t> types;       // token_types.h
  std::vector<float> scores;
  bool adds_space;  // before a text
};

// Whether it is one: spaces become U+2581, nothing else changes or splits the text, and all bytes have a token.
bool has_sentence_pieces(const nlohmann::json& file);

// `size`: of the vocabulary. Throws gpt::Error(checkpoint), beginning with `origin`, where scores would join others than its merges do.
SentencePieces sentence_pieces(const nlohmann::json& file, int64_t size, const std::string& origin);

}  // namespace gpt::exchange
