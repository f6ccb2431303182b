// Attention of a few queries to a part of a cache in vector instructions. cached_attention_kernel.cpp is compiled for several kinds of
// processor (cmake/CpuKernels.cmake); cached_attention.cpp distributes the work.
#pragma once

#include <cstdint>

namespace gpt::ops::cpu {

inline constexpr int64_t kCachedPart = 128;  // keys, at most

// The queries of a text that share a key/value head, and a part of that head's keys and values.
template <class T>
struct CachedPart {
  int64_t tokens, group, D;            // queries: heads of a group for each of the tokens
  const T* queries;                    // the first one
  int64_t token_stride, query_stride;  // from one token to the next, and from one head to the next
  const T *keys, *values;              // (positions, D) of the head
  int64_t past;         // the first token sees the positions up to this one, and each further one sees one more
  int64_t window;       // of those, the last ones
  int64_t begin, end;   // positions of the part
  float* sums;          // of the first query
  int64_t sums_stride;  // from one query to the next
};

// Sums of a part: the largest score, in powers of 2, the sum of all weights relative to it, and D weighted sums of the values.
constexpr int64_t cached_sums(int64_t D) { return 2 + D; }

// Queries of one head of keys and values, up to kMostChoosing, that choose among the same blocks.
inline constexpr int64_t kMostChoosing = 64;
template <class T>
struct ChoosingQueries {
  const T* const* queries;  // a pointer to each
  int64_t count, D;
  const float* means;  // (blocks, D)
  int64_t blocks, top;
};

template <class T>
struct CachedAttentionKernel {
  void (*attend)(const CachedPart<T>& part);
  // Adds up the sums of a query's parts, which lie one behind the other, and writes the weighted mean (D).
  void (*finish)(const float* sums, int64_t parts, int64_t D, T* y);
  // The mean (D) of the keys (positions, D) of a block.
  void (*average)(const T* keys, int64_t positions, int64_t D, float* mean);
  // Writes the blocks that each query chooses, (count, top), and -1 where there are fewer. scratch: choice_floats(blocks, top, D), aligned
  // to 64 bytes.
  void (*choose)(const ChoosingQueries<T>& queries, float* scratch, int32_t* chosen);
  int64_t (*choice_floats)(int64_t blocks, int64_t top, int64_t D);
};

}  // namespace gpt::ops::cpu
