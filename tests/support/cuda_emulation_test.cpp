#include "support/cuda_emulation.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt {
namespace {

using emulation::launch;

__device__ __forceinline__ int64_t warp_sum(int64_t value) {
  for (unsigned lanes = 16; lanes > 0; lanes /= 2) value += __shfl_down_sync(0xFFFFFFFF, value, lanes);
  return value;
}

// The usual reduction: a grid-stride loop with a tail, shuffles within warps, shared memory between them.
__global__ void sum_kernel(int64_t* sum, const int* values, int64_t n) {
  __shared__ int64_t partial[32];
  int64_t value = 0;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) value += values[i];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = warp_sum(threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0);
    if (threadIdx.x == 0) atomicAdd(sum, value);
  }
}

TEST(CudaEmulation, ReducesWithBarriersShufflesAndATail) {
  for (const int64_t n : {1, 31, 32, 33, 1000, 4097}) {
    std::vector<int> values(n);
    std::iota(values.begin(), values.end(), 1);
    for (const unsigned threads : {32u, 96u, 1024u}) {
      int64_t sum = 0;
      launch({3}, {threads}, [&] { sum_kernel(&sum, values.data(), n); });
      EXPECT_EQ(sum, n * (n + 1) / 2) << n << " values, " << threads << " threads";
    }
  }
}

template <bool with_barrier>
__global__ void reverse_kernel(int* values) {
  __shared__ int copy[64];
  copy[threadIdx.x] = values[threadIdx.x];
  if (with_barrier) __syncthreads();
  values[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

TEST(CudaEmulation, ABarrierOrdersABlock) {
  std::vector<int> expected(64), values(64);
  std::iota(expected.rbegin(), expected.rend(), 1);
  std::iota(values.begin(), values.end(), 1);
  launch({1}, {64}, [&] { reverse_kernel<true>(values.data()); });
  EXPECT_EQ(values, expected);
}

#ifdef GPT_SHOWS_RACES
// What the kernel throws when it has a race.
std::string race_of(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  try {
    launch({blocks}, {threads}, kernel);
  } catch (const std::logic_error& error) { return error.what(); }
  return "";
}

TEST(CudaEmulation, ShowsARaceForSharedMemory) {
  std::vector<int> values(64);
  EXPECT_EQ(race_of(2, 64, [&] { reverse_kernel<true>(values.data()); }).substr(0, 24), "a race for global memory");
  EXPECT_EQ(race_of(1, 64, [&] { reverse_kernel<true>(values.data()); }), "");
  EXPECT_EQ(race_of(1, 64, [&] { reverse_kernel<false>(values.data()); }).substr(0, 24), "a race for shared memory");
}

TEST(CudaEmulation, ShowsARaceThatGivesTheRightResult) {
  std::vector<int> values(64);
  // All write the same value.
  EXPECT_EQ(
      race_of(1, 64, [&] { values[0] = 1; }),
      "a race for global memory: thread 0 of block 0 writes and thread 1 of block 0 writes the same bytes, and nothing orders "
      "them");
  // Blocks have no order, though they run one after another here.
  EXPECT_NE(race_of(2, 32,
                    [&] {
                      if (threadIdx.x == 0) values[blockIdx.x] = values[0];
                    }),
            "");
  // The other warp may still read what is written for the next round.
  const auto rounds = [&](bool waits) {
    return race_of(1, 64, [&, waits] {
      __shared__ int of_round;
      for (int round = 0; round < 2; ++round) {
        if (threadIdx.x == 0) of_round = round;
        __syncthreads();
        values[threadIdx.x] = of_round;
        if (waits) __syncthreads();
      }
    });
  };
  EXPECT_EQ(rounds(true), "");
  EXPECT_NE(rounds(false), "");
}

TEST(CudaEmulation, WarpsOrderTheirOwnLanesAlone) {
  std::vector<unsigned> heard(64);
  const auto neighbour = [&](unsigned threads, unsigned distance) {
    return race_of(1, threads, [&, distance] {
      __shared__ unsigned numbers[64];
      numbers[threadIdx.x] = threadIdx.x;
      __syncwarp();
      heard[threadIdx.x] = numbers[threadIdx.x ^ distance];
    });
  };
  EXPECT_EQ(neighbour(64, 1), "");
  EXPECT_NE(neighbour(64, 32), "");
}

TEST(CudaEmulation, ConcurrentAdditionsAreNoRace) {
  int sum = 0;
  EXPECT_EQ(race_of(2, 64, [&] { atomicAdd(&sum, 1); }), "");
  EXPECT_EQ(sum, 128);
  EXPECT_NE(race_of(2, 64,
                    [&] {
                      atomicAdd(&sum, 1);
                      if (threadIdx.x == 0) sum = 0;
                    }),
            "");
}
#endif

// Each thread copies a value, and finds its copy where it has waited for it, and before that what no value is.
void copy_kernel(const uint32_t* from, uint32_t* before, uint32_t* after, unsigned first) {
  auto* const copies = static_cast<uint32_t*>(dynamic_shared_memory());
  const unsigned place = first + threadIdx.x;
  __pipeline_memcpy_async(copies + place, from + threadIdx.x, sizeof *copies);
  __pipeline_commit();
  before[threadIdx.x] = copies[place];
  __pipeline_wait_prior(0);
  after[threadIdx.x] = copies[place];
}

TEST(CudaEmulation, CopiesToSharedMemoryArriveWhenTheyAreWaitedFor) {
  constexpr unsigned kThreads = 32;
  constexpr size_t kBytes = kThreads * sizeof(uint32_t);
  std::vector<uint32_t> from(kThreads), before(kThreads), after(kThreads);
  std::iota(from.begin(), from.end(), 1);
  const auto run = [&](size_t bytes, unsigned first) {
    emulation::Launch().with_shared_memory(bytes, copy_kernel, 1, kThreads, from.data(), before.data(), after.data(),
                                           first);
  };
  run(kBytes, 0);
  EXPECT_EQ(before, std::vector<uint32_t>(kThreads, UINT32_MAX));
  EXPECT_EQ(after, from);
  EXPECT_THROW(run(kBytes, 1), std::logic_error) << "beyond what it asked for";
  EXPECT_THROW(run(256 << 10, 0), std::logic_error) << "more than there is";
}

TEST(CudaEmulation, ShufflesWithinAWidthAndAcrossAnXor) {
  std::vector<unsigned> down(64), across(64);
  launch({1}, {64}, [&] {
    down[threadIdx.x] = __shfl_down_sync(0xFFFFFFFF, threadIdx.x, 3, 8);
    across[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFF, threadIdx.x, 5);
  });
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(down[i], i % 8 + 3 < 8 ? i + 3 : i);
    EXPECT_EQ(across[i], i ^ 5);
  }
}

TEST(CudaEmulation, HalfAWarpMayShuffleAlone) {
  unsigned result = 0;
  launch({1}, {32}, [&] {
    if (threadIdx.x >= 16) return;
    const unsigned next = __shfl_down_sync(0xFFFF, threadIdx.x, 8, 16);
    if (threadIdx.x == 0) result = next;
  });
  EXPECT_EQ(result, 8u);
}

TEST(CudaEmulation, RefusesWhatAGpuLeavesUndefined) {
  EXPECT_THROW(launch({1}, {64},
                      [] {
                        if (threadIdx.x < 40) __shfl_xor_sync(0xFFFFFFFF, 1, 1);
                      }),
               std::logic_error);
  EXPECT_THROW(launch({1}, {24}, [] { __shfl_down_sync(0xFFFFFFFF, 1, 1); }), std::logic_error);
  EXPECT_THROW(launch({1}, {32}, [] { __shfl_xor_sync(0xFFFF, 1, 1); }), std::logic_error);
  EXPECT_THROW(launch({1}, {32}, [] { __shfl_xor_sync(1u << threadIdx.x, 1, 1); }), std::logic_error);
  EXPECT_THROW(launch({1}, {32}, [] { __syncwarp(0x1); }), std::logic_error);
  EXPECT_THROW(launch({1}, {32}, [] { threadIdx.x == 0 ? __syncwarp() : __syncthreads(); }), std::logic_error);
  EXPECT_THROW(launch({1}, {2}, [] { __syncwarp(threadIdx.x == 0 ? 0x3 : 0x2); }), std::logic_error);
}

TEST(CudaEmulation, NumbersThreeDimensions) {
  std::vector<int> seen(2 * 3 * 2 * 4 * 3 * 2);
  launch({2, 3, 2}, {4, 3, 2}, [&] {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    atomicAdd(&seen[block * blockDim.volume() + thread], 1);
  });
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

TEST(CudaEmulation, PassesOnWhatAKernelThrows) {
  EXPECT_THROW(launch({1}, {32},
                      [] {
                        if (threadIdx.x == 7) throw std::out_of_range("thread 7");
                      }),
               std::out_of_range);
}

}  // namespace
}  // namespace gpt
