// How many blocks of a kernel a multiprocessor of a GPU runs at once.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpt::ops::cuda {

// Limits of a multiprocessor: the threads and the bytes of shared memory for all of its blocks; the bytes that one block may have, and what
// the system takes for each besides.
struct BlockLimits {
  int64_t threads, shared_memory, shared_memory_of_block, reserved;
};

// Bytes of dynamic shared memory that any kernel may have: of 48 KB, of which its own variables take some.
inline constexpr int64_t kForAnyKernel = 40 << 10;

// Whether a block of so many threads may keep so many bytes in shared memory. Two of them must fit, of which one computes while the other
// fetches what it keeps.
inline bool may_keep(int64_t bytes, int64_t threads, const BlockLimits& limits) {
  constexpr int64_t kBlocks = 2, kOfSums = 512;  // block_maximum() and block_sums() take less
  const int64_t of_block = std::min(limits.shared_memory / kBlocks - limits.reserved, limits.shared_memory_of_block);
  return kBlocks * threads <= limits.threads && bytes <= of_block - kOfSums;
}

}  // namespace gpt::ops::cuda
