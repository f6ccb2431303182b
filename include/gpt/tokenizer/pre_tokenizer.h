// Splits text into the pieces within which byte pairs are merged, exactly as the regular expressions of GPT-2, of
// tiktoken's cl100k_base and o200k_base, of Llama 3 and of Qwen 2 do, with the character classes of Unicode 16.
#pragma once

#include <cstddef>
#include <string_view>

namespace gpt::tokenizer {

enum class SplitPattern { gpt2, cl100k, llama3, qwen2, o200k };

// The end of the piece that starts at `offset` < text.size(), which must be 0 or the end of an earlier piece. Bytes that
// are not UTF-8 count as single characters that are neither letter, number nor space.
size_t piece_end(SplitPattern pattern, std::string_view text, size_t offset);

// The last position in (0, text.size()) that is certain to end a piece whatever comes before and after the text, with the
// same pieces on both sides as in the whole; 0 if there is none.
size_t last_piece_boundary(SplitPattern pattern, std::string_view text);

// The regular expression, as tokenizer.json spells it.
std::string_view regular_expression(SplitPattern pattern);

}  // namespace gpt::tokenizer
