// How alike two texts are, from a few numbers of each: MinHash over the sets of their runs of five words (Broder, 1997, "On the
// resemblance and containment of documents").
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gpt::prepare {

// Two sets with a Jaccard similarity of J agree in each place with the probability J.
constexpr int kMinHashes = 128;
using MinHash = std::array<uint32_t, kMinHashes>;

constexpr MinHash no_words() {
  MinHash none;
  none.fill(UINT32_MAX);
  return none;
}

// Words are what is neither a space nor punctuation of ASCII, in lower case; a text of fewer than five is one run. no_words() where
// there are none. The union of two sets has the lesser of both numbers in each place.
MinHash min_hash(std::string_view text);

}  // namespace gpt::prepare
