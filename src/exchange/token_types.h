// What the tokenizers of GGUF have in common.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace gpt::exchange {

// Types of tokens, as the format numbers them.
inline constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

inline constexpr const char* kSpaceMark = "\u2581";  // what a piece of SentencePiece's has for a space

[[noreturn]] void refuse_tokenizer(const std::string& origin, const std::string& why);

// llama.cpp finds added tokens wherever their text stands; throws where one of a tokenizer.json looks at what is beside it.
void require_found_anywhere(const nlohmann::json& token, const std::string& origin);

}  // namespace gpt::exchange
