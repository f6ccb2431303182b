// The steps of reading a .tiktoken file, which tests and fuzzers call with vocabularies of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt::tokenizer {

// The bytes of each token, by rank. Ranks must be 0, 1, 2 ...
std::vector<std::string> read_tiktoken_ranks(std::string_view text, const std::string& origin);

// tiktoken merges the neighbours that make the token of the lowest rank, however that token is divided. If each token was
// learned from two earlier ones, a list of pairs is equivalent: for each token, the two parts that remain after merging its
// bytes with lower ranks only. A token that no two others make is found only as a whole piece; one that would have to be
// made in any other way is refused.
std::vector<std::pair<int32_t, int32_t>> merges_of_ranks(const std::vector<std::string>& tokens,
                                                         const std::string& origin);

}  // namespace gpt::tokenizer
