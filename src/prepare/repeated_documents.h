// Which documents of an input repeat an earlier one, so that they are left out.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "chunk.h"
#include "gpt/core/hash.h"
#include "gpt/prepare/prepare_options.h"
#include "min_hash.h"

namespace gpt::prepare {

// Documents by the number of their source and the position in it where they begin.
class RepeatedDocuments {
 public:
  void add(uint32_t source_number, uint64_t position) { positions_[source_number].insert(position), ++count_; }
  bool contains(uint32_t source_number, uint64_t position) const {
    const auto found = positions_.find(source_number);
    return found != positions_.end() && found->second.contains(position);
  }
  int64_t count() const { return count_; }

 private:
  std::map<uint32_t, std::set<uint64_t>> positions_;
  int64_t count_ = 0;
};

// A chunk with what can be computed of it on any thread.
struct ComparedChunk {
  Chunk chunk;
  std::vector<MinHash> hashes;  // one for each of its parts; empty for exact repetitions
};
ComparedChunk compared(Chunk chunk, Deduplicate how);

// Takes the chunks in their order. In memory are about 50 bytes for each document; for near repetitions, a kilobyte.
class RepetitionFinder {
 public:
  explicit RepetitionFinder(Deduplicate how) : how_(how) {}
  // `numbers`: those of the sources.
  void add(const ComparedChunk& chunk, const std::vector<uint32_t>& numbers);
  const RepeatedDocuments& repeated() const { return repeated_; }

 private:
  struct DigestHash {
    size_t operator()(const Hash128::Digest& digest) const { return digest[0]; }
  };
  using Sketch = std::array<uint8_t, kMinHashes>;  // the lowest byte of each number: enough to count how many agree

  bool repeats_an_earlier_one();
  bool is_near_an_earlier_one();

  const Deduplicate how_;
  RepeatedDocuments repeated_;
  Hash128 text_;  // hash of the document that is being taken
  MinHash words_ = no_words();
  std::unordered_set<Hash128::Digest, DigestHash> texts_;
  std::vector<Sketch> sketches_;                        // sketches of the documents that are kept
  std::unordered_map<uint64_t, uint32_t> first_owner_;  // the first owner of a band of numbers, in sketches_
};

}  // namespace gpt::prepare
