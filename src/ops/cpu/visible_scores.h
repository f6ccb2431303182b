// Which scores of a block of queries and a block of keys there are: those of keys that a query sees, which causality, the window and the
// borders of documents leave. What a query sees is always a run of positions that ends with its own, and a later query never begins
// earlier.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpt/simd/matrix_tile.h"
#include "ops/attention_shape.h"

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

static_assert(AttentionShape::kBlock == kMatrixRows);

inline int64_t block_rows(const AttentionShape& shape, int64_t block) {
  return std::min(AttentionShape::kBlock, shape.T - block * AttentionShape::kBlock);
}

// The first positions that the queries of a block see, as numbers that vectors compare; behind the last query its own again.
struct FirstKeys {
  float positions[AttentionShape::kBlock];

  FirstKeys(const AttentionShape& shape, int64_t batch, int64_t query_block) {
    const int64_t first = query_block * AttentionShape::kBlock, last = first + block_rows(shape, query_block) - 1;
    for (int64_t i = 0; i < AttentionShape::kBlock; ++i)
      positions[i] = static_cast<float>(shape.first_key(batch, std::min(first + i, last)));
  }
};

// What products with scores (keys, queries) need. On the diagonal, query i sees the keys up to i; everywhere it sees those from its
// first one on.
struct Causal {
  bool diagonal;
  int64_t key_position, distance;  // of the first key; from there to the first query
  int64_t keys, queries, width;    // how many these blocks have; a head's padded width
  const float* first_positions;    // FirstKeys of the queries, which must outlive this

  Causal(const AttentionShape& shape, const FirstKeys& first_keys, int64_t query_block, int64_t key_block)
      : diagonal(query_block == key_block),
        key_position(key_block * AttentionShape::kBlock),
        distance((query_block - key_block) * AttentionShape::kBlock),
        keys(block_rows(shape, key_block)),
        queries(block_rows(shape, query_block)),
        width(shape.padded_width()),
        first_positions(first_keys.positions) {}

  // Queries, whatever their positions, that see all of a block of keys. first_keys: those of a block without windows and documents.
  Causal(const AttentionShape& shape, const FirstKeys& first_keys, int64_t queries)
      : diagonal(false),
        key_position(0),
        distance(0),
        keys(AttentionShape::kBlock),
        queries(queries),
        width(shape.padded_width()),
        first_positions(first_keys.positions) {}

  // Scores, from vectors of D.
  auto scores(int64_t D) const {
    return [this, D](int64_t first, int64_t last) {
      return Extent{diagonal ? round_down(first, kColumns) : 0, round_up(end_of_queries(last), kColumns), 0, D};
    };
  }
  // Sums over the keys that queries see.
  auto over_keys() const {
    return [this](int64_t first, int64_t last) {
      return Extent{0, width, round_down(first_key(first), kStepTerms),
                    diagonal ? std::min(last, keys) : AttentionShape::kBlock};
    };
  }
  // Sums over the queries that see keys.
  auto over_queries() const {
    return [this](int64_t first, int64_t last) {
      return Extent{0, width, diagonal ? round_down(first, kStepTerms) : 0, end_of_queries(last)};
    };
  }
  // The keys of which the products read a vector of queries: from begin() to before end(). Those over queries read whole tiles of keys.
  int64_t begin(int64_t query) const {
    return round_down(first_key(std::max<int64_t>(0, query - kStepRows)), kTogether);
  }
  int64_t end(int64_t query) const {
    return diagonal ? std::min(packed_keys(), round_up(query + kLanes, kTogether)) : AttentionShape::kBlock;
  }
  // The keys, and with tiles as many more as make whole steps of terms, which no query sees.
  int64_t packed_keys() const { return kHasTiles ? round_up(keys, kStepTerms) : keys; }

  // Those of them that all of a vector of queries see: from first_visible(), if it is before it, to before visible().
  int64_t first_visible(int64_t query) const { return std::min(first_key(query + kLanes - 1), end(query)); }
  int64_t visible(int64_t query) const { return diagonal ? std::min(keys, query + 1) : AttentionShape::kBlock; }

  // Where neighbouring queries from `query` on see a key.
  FloatVector sees(int64_t query, int64_t key) const {
    const FloatVector ago = FloatVector::arange(static_cast<float>(query - key), 1.0f);
    return (ago >= FloatVector(static_cast<float>(-distance))) &
           (FloatVector::loadu(first_positions + query) <= FloatVector(static_cast<float>(key_position + key)));
  }

 private:
  static constexpr int64_t kTogether = std::max(kStepRows, kStepTerms);

  int64_t first_key(int64_t query) const {
    return std::clamp<int64_t>(static_cast<int64_t>(first_positions[query]) - key_position, 0, AttentionShape::kBlock);
  }
  // The end of the queries that see one of the keys up to before `end`.
  int64_t end_of_queries(int64_t end) const {
    if (first_key(queries - 1) < end) return queries;
    int64_t low = 0, high = queries - 1;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      first_key(middle) < end ? low = middle + 1 : high = middle;
    }
    return low;
  }
};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
