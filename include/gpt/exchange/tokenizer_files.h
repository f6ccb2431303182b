// Our tokenizers as Hugging Face's tokenizer.json. Byte-level BPE has that form already. A tokenizer of bytes is BPE without merges, and
// one of characters a WordLevel model over single characters, which refuses a character that it lacks, as ours does.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gpt/tokenizer/bpe_model.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::exchange {

std::string hugging_face_json(const tokenizer::Tokenizer& tokenizer);  // tokenizer.json

tokenizer::BpeModel byte_vocabulary(const tokenizer::Tokenizer& tokenizer);  // one of bytes as BPE without merges

// The inverse, which reads whatever make_tokenizer() reads too. Throws gpt::Error(data), beginning with `origin`, for what this program
// cannot do.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_from_hugging_face(std::string_view json, const std::string& origin);

// The file with the tokenizer of a folder of Hugging Face's form: tokenizer.json, or what older folders have in its place, SentencePiece's
// tokenizer.model or GPT-2's pair, of which vocab.json is named. Empty: it has none.
std::string tokenizer_file_of(const std::string& folder);
std::unique_ptr<tokenizer::Tokenizer> read_tokenizer_file(
    const std::string& file);  // throws as tokenizer_from_hugging_face()

}  // namespace gpt::exchange
