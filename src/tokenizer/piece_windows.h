// Where many pieces end, found in 64 bytes of the text at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "gpt/tokenizer/pre_tokenizer.h"

namespace gpt::tokenizer {

// What piece_ends() needs room for; it fills the more of a larger span.
constexpr size_t kFewestPieceEnds = 64;

// Fills `ends` from its start with the ends of the pieces that follow each other from `begin` on, as piece_end() gives them
// one by one, and returns how many: at least one. `begin` < text.size() as there.
size_t piece_ends(SplitPattern pattern, std::string_view text, size_t begin, std::span<size_t> ends);

}  // namespace gpt::tokenizer
