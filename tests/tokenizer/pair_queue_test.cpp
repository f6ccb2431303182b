#include "src/tokenizer/pair_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace gpt::tokenizer {
namespace {

using CountedPieces = std::vector<std::pair<std::string, uint64_t>>;  // with their counts
using Merges = std::vector<TokenPair>;

constexpr int32_t kBytes = 256;
constexpr size_t kNoRoom = 0;  // the index is as small as it can be

Merges merges_of(const CountedPieces& pieces, int32_t most, size_t least_room = kNoRoom, int64_t min_count = 0) {
  PairQueue queue(min_count, least_room);
  std::array<int32_t, kBytes> token_of_byte;
  std::iota(token_of_byte.begin(), token_of_byte.end(), 0);
  std::vector<size_t> bytes(kBytes, 1);
  for (const size_t count : bytes) queue.add_token(count);
  for (const auto& [piece, count] : pieces) queue.add_piece(piece, token_of_byte, count);
  Merges merges;
  while (merges.size() < most) {
    const std::optional<TokenPair> pair = queue.next();
    if (!pair) break;
    merges.push_back(*pair);
    bytes.push_back(bytes[pair->first] + bytes[pair->second]);
    queue.add_token(bytes.back());
    queue.merge(*pair, static_cast<int32_t>(bytes.size()) - 1);
  }
  return merges;
}

// The definition, with everything counted anew for each merge.
Merges slow_merges_of(const CountedPieces& pieces, int32_t most, int64_t min_count = 0) {
  std::vector<std::vector<int32_t>> words;
  for (const auto& [piece, count] : pieces) {
    words.emplace_back();
    for (const char byte : piece) words.back().push_back(static_cast<unsigned char>(byte));
  }
  Merges merges;
  while (merges.size() < most) {
    std::map<TokenPair, uint64_t> counts;
    for (size_t i = 0; i < words.size(); ++i) {
      for (size_t k = 0; k + 1 < words[i].size(); ++k) counts[{words[i][k], words[i][k + 1]}] += pieces[i].second;
    }
    std::pair<TokenPair, uint64_t> best;
    for (const auto& entry : counts) {
      if (entry.second > best.second) best = entry;
    }
    if (best.second < 1 || best.second < min_count) break;
    const auto [first, second] = best.first;
    merges.push_back(best.first);
    for (std::vector<int32_t>& word : words) {
      size_t kept = 0;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool is_pair = i + 1 < word.size() && word[i] == first && word[i + 1] == second;
        word[kept++] = is_pair ? kBytes + static_cast<int32_t>(merges.size()) - 1 : word[i];
        i += is_pair;
      }
      word.resize(kept);
    }
  }
  return merges;
}

std::string random_text(uint64_t seed, size_t length, int letters) {
  std::mt19937_64 random(seed);
  std::string text;
  while (text.size() < length) text += static_cast<char>('a' + random() % letters);
  return text;
}

TEST(PairQueue, MergesOneLetterAsDefined) {
  for (const size_t length : {2, 3, 1000, 65'536, 99'999}) {
    const CountedPieces pieces = {{std::string(length, 'a'), 1}};
    EXPECT_EQ(merges_of(pieces, 100), slow_merges_of(pieces, 100)) << length;
  }
  CountedPieces pieces;
  for (size_t length = 1; length < 150; ++length) pieces.emplace_back(std::string(length, 'a'), 1 + length % 7);
  EXPECT_EQ(merges_of(pieces, 1000), slow_merges_of(pieces, 1000));
}

// Few letters have pairs too frequent for lists, many have more pairs than a table holds.
TEST(PairQueue, MergesRandomLettersAsDefinedHoweverSmallTheIndex) {
  for (const int letters : {2, 3, 10, 26, 150}) {
    for (const size_t length : {100, 4000, 20'000}) {
      const CountedPieces pieces = {{random_text(length, length, letters), 1},
                                    {random_text(1, length / 2, letters), 3}};
      const Merges expected = slow_merges_of(pieces, 60);
      for (const size_t least_room : {kNoRoom, size_t{10'000}, size_t{50'000}, PairQueue::kLeastRoom}) {
        EXPECT_EQ(merges_of(pieces, 60, least_room), expected)
            << letters << " letters, " << length << ", " << least_room;
      }
    }
  }
}

// In the end every pair is there once, so that the index holds some of many equally frequent ones.
TEST(PairQueue, MergesToTheEndHoweverSmallTheIndex) {
  for (const int letters : {4, 60}) {
    const CountedPieces pieces = {{random_text(5, 1500, letters), 1}};
    const Merges expected = slow_merges_of(pieces, 2000);
    EXPECT_LT(expected.size(), 2000);
    EXPECT_EQ(merges_of(pieces, 2000), expected) << letters;
    EXPECT_EQ(merges_of(pieces, 2000, kNoRoom, 2), slow_merges_of(pieces, 2000, 2)) << letters;
  }
}

// Pairs whose counts differ by one in the order against that of their ids.
TEST(PairQueue, CountsExactlyHoweverOftenAPieceOccurs) {
  CountedPieces pieces;
  char letter = 'a';
  for (const uint64_t count : {uint64_t{1}, uint64_t{1023}, uint64_t{1024}, uint64_t{1055}, uint64_t{1'234'567},
                               uint64_t{1} << 32, (uint64_t{1} << 50) + 12'345}) {
    for (const uint64_t more : {0, 1}) {
      pieces.emplace_back(std::string{letter, static_cast<char>(letter + 1)}, count + more);
      letter += 2;
    }
  }
  EXPECT_EQ(merges_of(pieces, 100), slow_merges_of(pieces, 100));
}

}  // namespace
}  // namespace gpt::tokenizer
