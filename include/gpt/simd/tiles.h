// The tiles of a matrix unit (AMX): eight registers of 16 rows of 64 bytes, which are 16 float32 values or 16 pairs of bfloat16 values. For
// kernels that cmake/CpuKernels.cmake compiles, on processors with the unit, or with GPT_EMULATED_TILES in plain C++, for tests on others.
#pragma once

#include <cstdint>

// __AMXBF16__ is Clang's name of __AMX_BF16__.
#if defined(__AMX_BF16__) || defined(__AMXBF16__) || defined(GPT_EMULATED_TILES)
#define GPT_TILES
#endif

#ifdef GPT_TILES
#include <bit>
#include <cstring>
#endif

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {

// Rows of a tile; values or pairs of its rows.
inline constexpr int64_t kTileSide = 16;
inline constexpr int64_t kTilePairs = kTileSide * kTileSide;

#ifdef GPT_TILES

inline constexpr bool kHasTiles = true;

#ifdef GPT_EMULATED_TILES

inline thread_local uint32_t emulated_tiles[8][kTileSide][kTileSide];

inline void configure_tiles() {}
inline void release_tiles() {}

template <int kTile>
void zero_tile() {
  std::memset(emulated_tiles[kTile], 0, sizeof(emulated_tiles[kTile]));
}

template <int kTile>
void load_tile(const void* from, int64_t stride_bytes) {
  for (int64_t i = 0; i < kTileSide; ++i)
    std::memcpy(emulated_tiles[kTile][i], static_cast<const char*>(from) + i * stride_bytes, 64);
}

template <int kTile>
void store_tile(float* to, int64_t stride_bytes) {
  for (int64_t i = 0; i < kTileSide; ++i)
    std::memcpy(reinterpret_cast<char*>(to) + i * stride_bytes, emulated_tiles[kTile][i], 64);
}

template <int kSums, int kA, int kB>
void add_tile_product() {
  const auto low = [](uint32_t pair) { return std::bit_cast<float>(pair << 16); };
  const auto high = [](uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); };
  for (int64_t i = 0; i < kTileSide; ++i) {
    for (int64_t j = 0; j < kTileSide; ++j) {
      float sum = std::bit_cast<float>(emulated_tiles[kSums][i][j]);
      for (int64_t k = 0; k < kTileSide; ++k) {
        const uint32_t a = emulated_tiles[kA][i][k], b = emulated_tiles[kB][k][j];
        sum += low(a) * low(b);
        sum += high(a) * high(b);
      }
      emulated_tiles[kSums][i][j] = std::bit_cast<uint32_t>(sum);
    }
  }
}

#else  // of the processor

// The configuration as the instruction reads it.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

inline void configure_tiles() {
  static constexpr TileConfiguration kWhole;
  asm volatile("ldtilecfg %0" : : "m"(kWhole));
}

inline void release_tiles() { asm volatile("tilerelease"); }

// GCC's intrinsics take the number of a register as a literal, and not as the argument of a template.
template <int kTile>
void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

template <int kTile>
void load_tile(const void* from, int64_t stride_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride_bytes), "i"(kTile) : "memory");
}

template <int kTile>
void store_tile(float* to, int64_t stride_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride_bytes), "i"(kTile) : "memory");
}

template <int kSums, int kA, int kB>
void add_tile_product() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}

#endif

#else  // without tiles

inline constexpr bool kHasTiles = false;

inline void configure_tiles() {}
inline void release_tiles() {}

#endif

// Within its life the unit, if there is one, is ready. Afterwards its state is empty, which switches between threads need not save.
class TileScope {
 public:
  TileScope() { configure_tiles(); }
  ~TileScope() { release_tiles(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
