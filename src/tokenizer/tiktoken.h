// The parts of reading a .tiktoken file, which the tests and fuzzers give vocabularies of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt {

// The bytes of each token, by rank. Ranks have to be 0, 1, 2 ...
std::vector<std::string> read_tiktoken_ranks(std::string_view text, const std::string& origin);

// tiktoken merges the neighbours that make the token of the lowest rank, however they are cut. Where each token is
// learnt from two that came before, the same is a list of pairs: for each token the two that merging its bytes with
// lower ranks ends in. A token that no two others make is found only as a whole piece; one that has to be made
// otherwise is refused.
std::vector<std::pair<int32_t, int32_t>> merges_of_ranks(const std::vector<std::string>& tokens,
                                                         const std::string& origin);

}  // namespace gpt
