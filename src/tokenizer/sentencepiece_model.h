// The .model files of SentencePiece, a ModelProto of Protocol Buffers as sentencepiece_model.proto of version 0.2 has it.
#pragma once

#include <string>
#include <string_view>

namespace gpt::tokenizer {

// What such a file says, as a tokenizer.json: BPE over characters, merged in the order of the scores, with bytes for characters that have no
// piece. Throws gpt::Error(data) beginning with `origin` for files that are damaged, of another kind (Unigram, ...), or that normalize text.
std::string json_of_sentencepiece_model(std::string_view file, const std::string& origin);

}  // namespace gpt::tokenizer
