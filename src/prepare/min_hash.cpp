#include "min_hash.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "gpt/core/hash.h"
#include "gpt/core/seeds.h"

namespace gpt::prepare {
namespace {

constexpr size_t kWords = 5;

// h -> a h + b modulo 2^32 with an odd a, one for each place: permutations of what is hashed already.
struct Permutations {
  MinHash multiplier, offset;
  Permutations() {
    for (uint32_t i = 0; i < kMinHashes; ++i) {
      multiplier[i] = static_cast<uint32_t>(mix64(2 * i + 1)) | 1;
      offset[i] = static_cast<uint32_t>(mix64(2 * i + 2));
    }
  }
};

void add(uint32_t hash, MinHash& least) {
  static const Permutations permutations;
  for (int i = 0; i < kMinHashes; ++i)
    least[i] = std::min(least[i], hash * permutations.multiplier[i] + permutations.offset[i]);
}

bool is_in_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte);
}

}  // namespace

MinHash min_hash(std::string_view text) {
  MinHash least = no_words();
  std::array<uint64_t, kWords> run{};  // the hashes of the last words, the latest last
  size_t words = 0;
  std::string word;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && is_in_word(text[at])) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(text[at])));
      continue;
    }
    if (word.empty()) continue;
    std::shift_left(run.begin(), run.end(), 1);
    run.back() = hash64(word);
    word.clear();
    const std::string_view bytes(reinterpret_cast<const char*>(run.data()), sizeof run);
    if (++words >= kWords) add(static_cast<uint32_t>(hash64(bytes)), least);
  }
  if (words > 0 && words < kWords)
    add(static_cast<uint32_t>(hash64({reinterpret_cast<const char*>(run.data()), sizeof run})), least);
  return least;
}

}  // namespace gpt::prepare
