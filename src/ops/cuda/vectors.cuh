// What our CUDA kernels share: eight neighbouring elements at once as float32 values, sums over a block, dropout masks that are
// drawn anew. Compiled by nvcc and, under tests/support/cuda_emulation.h, by the host compiler.
#pragma once

#ifdef __CUDACC__
#include <cuda_pipeline.h>
#endif

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace gpt::ops::cuda {

// So many elements a thread reads at once: 16 bytes of a 16-bit type, twice 16 of float32.
inline constexpr int kGroup = 8;

inline int64_t groups_of(int64_t elements) { return (elements + kGroup - 1) / kGroup; }

struct Group {
  float values[kGroup];
};

// 16 bytes of any type.
struct [[gnu::may_alias]] alignas(16) Words {
  uint32_t words[4];
};

template <class T>
struct alignas(16) Pack {
  T values[16 / sizeof(T)];
};

// A group as memory has it. Unpacking an element waits for its load, so that a group stays packed until its values are needed. If they
// have 16 bits it takes half of their registers.
template <class T>
struct StoredGroup {
  static constexpr int kWidth = 16 / sizeof(T), kPacks = kGroup / kWidth;
  Words packs[kPacks];

  __device__ Group values() const {
    Group group;
    for (int pack = 0; pack < kPacks; ++pack) {
      const auto elements = __builtin_bit_cast(Pack<T>, packs[pack]);
      for (int i = 0; i < kWidth; ++i) group.values[pack * kWidth + i] = static_cast<float>(elements.values[i]);
    }
    return group;
  }
};

// The group that begins at `from`. is_whole: `from` is a multiple of 16 bytes, and all elements of the group may be read; so there
// is no branch, and the loads of several groups are under way at once. Otherwise only the first `count` elements exist, and the
// others are 0.
template <bool is_whole, class T>
__device__ StoredGroup<T> fetch(const T* from, int64_t count) {
  using Stored = StoredGroup<T>;
  Stored group;
  for (int pack = 0; pack < Stored::kPacks; ++pack) {
    if constexpr (is_whole) {
      group.packs[pack] = reinterpret_cast<const Words*>(from)[pack];
    } else {
      Pack<T> elements;
      for (int i = 0; i < Stored::kWidth; ++i) {
        const int at = pack * Stored::kWidth + i;
        elements.values[i] = at < count ? from[at] : static_cast<T>(0.0f);
      }
      group.packs[pack] = __builtin_bit_cast(Words, elements);
    }
  }
  return group;
}

// Its values at once. Not by fetch(): the compiler would split the stores of kernels that add to what they load.
template <bool is_whole, class T>
__device__ Group load(const T* from, int64_t count) {
  Group group;
  if constexpr (is_whole) {
    constexpr int kWidth = 16 / sizeof(T);
    for (int pack = 0; pack < kGroup / kWidth; ++pack) {
      const Pack<T> loaded = reinterpret_cast<const Pack<T>*>(from)[pack];
      for (int i = 0; i < kWidth; ++i) group.values[pack * kWidth + i] = static_cast<float>(loaded.values[i]);
    }
  } else {
    for (int i = 0; i < kGroup; ++i) group.values[i] = i < count ? static_cast<float>(from[i]) : 0.0f;
  }
  return group;
}

// What the caches need not keep.
template <class T>
__device__ void store_streaming(Pack<T>* to, const Pack<T>& pack) {
#ifdef __CUDACC__
  __stcs(reinterpret_cast<uint4*>(to), __builtin_bit_cast(uint4, pack));
#else
  *to = pack;
#endif
}

template <bool is_whole, bool is_streaming = false, class T>
__device__ void store(const Group& group, T* to, int64_t count) {
  if constexpr (is_whole) {
    constexpr int kWidth = 16 / sizeof(T);
    for (int pack = 0; pack < kGroup / kWidth; ++pack) {
      Pack<T> stored;
      for (int i = 0; i < kWidth; ++i) stored.values[i] = static_cast<T>(group.values[pack * kWidth + i]);
      Pack<T>* const place = reinterpret_cast<Pack<T>*>(to) + pack;
      if constexpr (is_streaming) {
        store_streaming(place, stored);
      } else {
        *place = stored;
      }
    }
  } else {
    for (int i = 0; i < kGroup; ++i) {
      if (i < count) to[i] = static_cast<T>(group.values[i]);
    }
  }
}

#ifdef __CUDACC__
// What a launch asks for besides the variables of the kernel.
__device__ inline void* dynamic_shared_memory() {
  extern __shared__ Words of_block[];
  return of_block;
}
#endif

// e^x and 1 / x. Where values are float32 they are accurate to the last digits; where values have 16 bits they are the hardware's
// approximations, whose relative errors, some millionths, are far below the rounding of those values. Subnormal numbers are 0 there:
// CUDA's own functions spend as many instructions on keeping them as on all else.
template <class T>
__device__ float power(float x) {
#ifdef __CUDACC__
  if constexpr (!std::is_same_v<T, float>) {
    constexpr float kLog2E = 1.4426950409f;
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2E));
    return result;
  }
#endif
  return expf(x);
}

template <class T>
__device__ float reciprocal(float x) {
#ifdef __CUDACC__
  if constexpr (!std::is_same_v<T, float>) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
#endif
  return 1 / x;
}

// Two sums over the threads of a block, of at most 1,024; every thread gets them. Whoever reads shared memory of its own around
// this need not synchronize besides.
struct Sums {
  float first, second;
};

__device__ inline Sums block_sums(Sums sums) {
  __shared__ Sums of_warps[32];
  for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
    sums.first += __shfl_xor_sync(0xffffffff, sums.first, lanes);
    sums.second += __shfl_xor_sync(0xffffffff, sums.second, lanes);
  }
  __syncthreads();  // the last call's sums have been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sums;
  __syncthreads();
  Sums total{0, 0};
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {  // one after another: the same in every thread
    total.first += of_warps[warp].first;
    total.second += of_warps[warp].second;
  }
  return total;
}

__device__ inline float warp_maximum(float value) {
  for (unsigned lanes = 16; lanes > 0; lanes /= 2) { value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, lanes)); }
  return value;
}

__device__ inline float block_maximum(float value) {
  __shared__ float of_warps[32];
  value = warp_maximum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) value = fmaxf(value, of_warps[warp]);
  return value;
}

// An element is kept where its 16 random bits, which the key, the site and its place determine, are below `kept_of_65536`.
struct DropoutMask {
  const int64_t* place;  // on the device: the key and the number of the first sample; null: without dropout
  uint32_t kept_of_65536, site;
  int64_t of_sample;        // the rows of a sample
  int64_t first_group = 0;  // of columns in the rows of the whole model, where these are a part of them

  // The number in the update of a row of the micro-batch.
  __device__ int64_t number_of(int64_t row) const { return place[1] * of_sample + row; }
};

// Eight times 16 random bits for one group: Philox4x32-10 of Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3".
struct RandomBits {
  uint32_t words[4];

  __device__ uint32_t of(int element) const { return words[element / 2] >> (element % 2 * 16) & 0xffff; }
};

__device__ inline RandomBits philox(uint64_t key, uint32_t first, uint32_t second, uint32_t third, uint32_t fourth) {
  RandomBits bits{{first, second, third, fourth}};
  uint32_t* const x = bits.words;
  auto low_key = static_cast<uint32_t>(key), high_key = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * x[0], b = uint64_t{0xCD9E8D57} * x[2];
    x[0] = static_cast<uint32_t>(b >> 32) ^ x[1] ^ low_key;
    x[1] = static_cast<uint32_t>(b);
    x[2] = static_cast<uint32_t>(a >> 32) ^ x[3] ^ high_key;
    x[3] = static_cast<uint32_t>(a);
    low_key += 0x9E3779B9;
    high_key += 0xBB67AE85;
  }
  return bits;
}

// 0 for the elements that are dropped, for one group of a row of the micro-batch.
__device__ inline Group dropout_factors(const DropoutMask& mask, int64_t row, int64_t group) {
  const int64_t number = mask.number_of(row);
  const RandomBits bits = philox(static_cast<uint64_t>(mask.place[0]), static_cast<uint32_t>(mask.first_group + group),
                                 static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), mask.site);
  const float factor = 65536.0f / static_cast<float>(mask.kept_of_65536);
  Group factors;
  for (int i = 0; i < kGroup; ++i) { factors.values[i] = bits.of(i) < mask.kept_of_65536 ? factor : 0.0f; }
  return factors;
}

}  // namespace gpt::ops::cuda
