#include <c10/util/BFloat16.h>

#include <algorithm>

#include "gpt/simd/arena.h"
#include "gpt/simd/float_pair.h"
#include "gpt/simd/matrix_tile.h"
#include "gpt/simd/pairs.h"
#include "gpt/simd/tiles.h"
#include "product_kernel.h"

// Products on a matrix unit. Four tiles hold the sums of 32 x 32 values, to which two tiles of rows and two of columns add 32 terms at a
// time. Columns are packed in panels of 32, each while the unit multiplies all rows with the one before. Rows are packed once for all
// columns: where they lie, those of a tile often share few places of a cache.

#ifdef GPT_TILES

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;

constexpr int64_t kSide = 2 * kTileSide;   // rows and columns of the result whose sums lie in tiles together
constexpr int64_t kTerms = 2 * kTileSide;  // terms of a tile
constexpr int64_t kTileBytes = 64;         // of a tile's row, where it is packed

constexpr int64_t kPackingRows = 32;     // of ProductKernel
constexpr int64_t kPanelTerms = 1024;    // of sums that are added without a break
constexpr int64_t kMostRows = 512;       // rows whose panel terms stay in a core's cache
constexpr int64_t kFetchedTerms = 256;   // how far ahead a weight is fetched, which mostly comes from memory
constexpr int64_t kGroupColumns = 1024;  // columns that get sums of several panels, which are kept between them

// 16 rows of 16 pairs of neighbours -> a tile; 0 follows what there is.
void pack_neighbours(const BFloat16* from, int64_t stride, int64_t rows, int64_t terms, BFloat16Pair* to) {
  const auto there = static_cast<__mmask32>(terms >= kTerms ? ~0u : (1u << terms) - 1);
  for (int64_t i = 0; i < kTileSide; ++i, to += kTileSide) {
    const __m512i pairs = i < rows ? _mm512_maskz_loadu_epi16(there, from + i * stride) : _mm512_setzero_si512();
    _mm512_storeu_si512(to, pairs);
  }
}

// 16 values of each of 32 rows -> a tile of pairs of two rows each; 0 follows what there is.
void pack_rows_of_pairs(const BFloat16* from, int64_t stride, int64_t rows, int64_t columns, BFloat16Pair* to) {
  for (int64_t i = 0; i < kTerms; i += 2, to += kTileSide, from += 2 * stride) {
    const BFloat16* second = i + 1 < rows ? from + stride : nullptr;
    _mm512_storeu_si512(to, i >= rows              ? _mm512_setzero_si512()
                            : columns >= kTileSide ? interleaved(from, second, Whole())
                                                   : interleaved(from, second, columns));
  }
}

// 16 rows of 16 pairs, so many pairs apart -> a tile of their transpose. They are moved as floats.
void transpose_pairs(const void* from, int64_t stride, BFloat16Pair* to) {
  transpose_tile(static_cast<const float*>(from), stride, reinterpret_cast<float*>(to), kTileSide);
}

// 16 rows of the first factor, each with 32 terms.
void pack_row_tile(const ProductFactor<BFloat16>& a, int64_t row, int64_t rows, int64_t term, int64_t terms,
                   BFloat16Pair* to) {
  if (!a.is_transposed) return pack_neighbours(a.at(row, term), a.stride, rows, terms, to);
  alignas(64) BFloat16Pair pairs[kTilePairs];
  pack_rows_of_pairs(a.at(row, term), a.stride, terms, rows, pairs);
  transpose_pairs(pairs, kTileSide, to);
}

// 32 terms of 16 columns of the second factor.
void pack_column_tile(const ProductFactor<BFloat16>& b, int64_t term, int64_t terms, int64_t column, int64_t columns,
                      BFloat16Pair* to) {
  if (!b.is_transposed) return pack_rows_of_pairs(b.at(term, column), b.stride, terms, columns, to);
  const bool is_whole = terms >= kTerms && columns >= kTileSide && b.stride % 2 == 0;
  if (is_whole) {
    for (int64_t i = 0; i < kTileSide; ++i) __builtin_prefetch(b.at(term + kFetchedTerms, column + i), 0, 2);
    return transpose_pairs(b.at(term, column), b.stride / 2, to);
  }
  alignas(64) BFloat16Pair neighbours[kTilePairs];
  pack_neighbours(b.at(term, column), b.stride, columns, terms, neighbours);
  transpose_pairs(neighbours, kTileSide, to);
}

void store_values(const FloatPair& values, float* to, int64_t count) { store(values, to, count); }

// Rounds by an instruction that ATen's vectors of AVX-512 do not use.
void store_values(const FloatPair& values, BFloat16* to, int64_t count) {
  count == kSide ? _mm512_storeu_si512(to, rounded(values.low, values.high)) : store(values, to, count);
}

// What a part is computed with.
struct TileScratch {
  int64_t panel_terms;     // terms of a panel, a multiple of kTerms
  int64_t panels;          // that follow each other along the sums
  int64_t block_rows;      // rows of the result that are taken together, at most
  int64_t group_columns;   // and columns
  BFloat16Pair* panel[2];  // (panel_terms / kTerms, 2 tiles): one in use, and the next one
  BFloat16Pair* rows;      // (block_rows / kSide, panel_terms / kTerms, 2 tiles)
  Matrix sums;             // (block_rows, group_columns), or of kSide x kSide values
  int64_t floats;

  template <class Arguments>
  TileScratch(const Arguments& product, int64_t part_rows, Arena arena)
      : panel_terms(round_up(divide_up(product.K, divide_up(product.K, kPanelTerms)), kTerms)),
        panels(divide_up(product.K, panel_terms)),
        block_rows(round_up(std::min(part_rows, kMostRows), kSide)),
        group_columns(panels > 1 ? std::min(round_up(product.N, kSide), kGroupColumns) : round_up(product.N, kSide)) {
    const int64_t pairs = panel_terms / 2;
    for (BFloat16Pair*& one : panel) one = arena.elements<BFloat16Pair>(pairs, kSide).data;
    rows = arena.elements<BFloat16Pair>(block_rows, pairs).data;
    sums = panels > 1 ? arena.matrix(block_rows, group_columns) : arena.matrix(kSide, kSide);
    floats = arena.used();
  }
};

// Terms of the sums that are added without a break.
struct Terms {
  int64_t begin, count;
  int64_t steps() const { return divide_up(count, kTerms); }
};

// Packs the tiles of a panel of the second factor one after the other.
class ColumnPacking {
 public:
  ColumnPacking(const ProductFactor<BFloat16>& b, Terms terms, int64_t column, int64_t columns, BFloat16Pair* to)
      : b_(b),
        terms_(terms),
        column_(column),
        columns_(columns),
        to_(to),
        tiles_(columns > 0 ? 2 * terms.steps() : 0) {}

  int64_t tiles() const { return tiles_; }
  void pack_one() {
    const int64_t term = done_ / 2 * kTerms, column = done_ % 2 * kTileSide, columns = columns_ - column;
    BFloat16Pair* to = to_ + done_++ * kTilePairs;
    // What the tile holds of columns behind the last one does not reach the result.
    if (columns > 0) pack_column_tile(b_, terms_.begin + term, terms_.count - term, column_ + column, columns, to);
  }

 private:
  const ProductFactor<BFloat16>& b_;
  const Terms terms_;
  const int64_t column_, columns_;
  BFloat16Pair* const to_;
  const int64_t tiles_;
  int64_t done_ = 0;
};

// Sums of kSide x kSide products of rows and a panel. meanwhile() is called after each step.
template <class Meanwhile>
void multiply(const BFloat16Pair* rows, const BFloat16Pair* panel, int64_t steps, bool adds, Matrix sums,
              const Meanwhile& meanwhile) {
  const int64_t stride = sums.stride * static_cast<int64_t>(sizeof(float));
  float *const lower = sums.data, *const upper = sums.row(kTileSide);
  if (adds) {
    load_tile<0>(lower, stride), load_tile<1>(lower + kTileSide, stride);
    load_tile<2>(upper, stride), load_tile<3>(upper + kTileSide, stride);
  } else {
    zero_tile<0>(), zero_tile<1>(), zero_tile<2>(), zero_tile<3>();
  }
  for (int64_t step = 0; step < steps; ++step) {
    load_tile<4>(rows, kTileBytes);
    load_tile<6>(panel, kTileBytes);
    add_tile_product<0, 4, 6>();
    load_tile<7>(panel + kTilePairs, kTileBytes);
    add_tile_product<1, 4, 7>();
    load_tile<5>(rows + kTilePairs, kTileBytes);
    add_tile_product<2, 5, 6>();
    add_tile_product<3, 5, 7>();
    rows += 2 * kTilePairs, panel += 2 * kTilePairs;
    meanwhile();
  }
  store_tile<0>(lower, stride), store_tile<1>(lower + kTileSide, stride);
  store_tile<2>(upper, stride), store_tile<3>(upper + kTileSide, stride);
}

template <class R>
class PartProduct {
 public:
  PartProduct(const ProductArguments<BFloat16, R>& product, const TileScratch& scratch)
      : product_(product), scratch_(scratch) {}

  // Computes a block of rows and a group of columns.
  void multiply_block(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    for (int64_t begin = 0; begin < product_.K; begin += scratch_.panel_terms) {
      const Terms terms{begin, std::min(scratch_.panel_terms, product_.K - begin)};
      pack_rows(row, rows, terms);
      const auto packing = [&](int64_t at) {
        return ColumnPacking(product_.b, terms, column + at, std::min(kSide, columns - at),
                             scratch_.panel[at / kSide % 2]);
      };
      ColumnPacking first = packing(0);
      for (int64_t i = 0; i < first.tiles(); ++i) first.pack_one();
      for (int64_t at = 0; at < columns; at += kSide) {
        ColumnPacking next = packing(at + kSide);
        multiply_panel(row, rows, column, at, std::min(kSide, columns - at), terms, next);
      }
    }
  }

 private:
  void multiply_panel(int64_t row, int64_t rows, int64_t column, int64_t at, int64_t columns, Terms terms,
                      ColumnPacking& next) const {
    const int64_t steps = terms.steps(), steps_of_all = divide_up(rows, kSide) * steps;
    const bool is_last = terms.begin + terms.count == product_.K;
    int64_t due = 0;  // tiles to be packed, times the number of all steps
    for (int64_t r = 0; r < rows; r += kSide) {
      const Matrix sums = scratch_.panels > 1 ? Matrix{scratch_.sums.row(r) + at, scratch_.sums.stride} : scratch_.sums;
      const R* result = product_.result + (row + r) * product_.result_stride + column + at;
      int64_t rows_due = 0;
      // Meanwhile what is written next is fetched, and the next panel packed.
      multiply(packed_rows(r, terms), scratch_.panel[at / kSide % 2], steps, terms.begin > 0, sums, [&] {
        for (rows_due += kSide; rows_due >= steps; rows_due -= steps) {
          __builtin_prefetch(result, 1);
          result += product_.result_stride;
        }
        for (due += next.tiles(); due >= steps_of_all; due -= steps_of_all) next.pack_one();
      });
      if (is_last) write(sums, row + r, std::min(kSide, rows - r), column + at, columns);
    }
  }

  BFloat16Pair* packed_rows(int64_t r, Terms terms) const {
    return scratch_.rows + r / kSide * terms.steps() * 2 * kTilePairs;
  }

  // Tiles that share cache lines of a transposed factor are packed one after the other.
  void pack_rows(int64_t row, int64_t rows, Terms terms) const {
    for (int64_t r = 0; r < rows; r += kSide) {
      BFloat16Pair* to = packed_rows(r, terms);
      for (int64_t term = 0; term < terms.count; term += kTerms) {
        for (int64_t i = 0; i < kSide; i += kTileSide, to += kTilePairs) {
          const int64_t count = rows - r - i;
          if (count > 0) pack_row_tile(product_.a, row + r + i, count, terms.begin + term, terms.count - term, to);
        }
      }
    }
  }

  void write(Matrix sums, int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    static_assert(FloatPair::size() == kSide);
    for (int64_t i = 0; i < rows; ++i) {
      R* to = product_.result + (row + i) * product_.result_stride + column;
      FloatPair values = load(sums.row(i));
      if (product_.bias) values = values + load(product_.bias + column, columns);
      if (product_.adds) values = values + load(to, columns);
      store_values(values, to, columns);
    }
  }

  const ProductArguments<BFloat16, R>& product_;
  const TileScratch& scratch_;
};

template <class R>
void multiply(const ProductArguments<BFloat16, R>& product, const ProductPart& part, float* memory) {
  const TileScope tiles;
  const TileScratch scratch(product, part.last_row - part.first_row, Arena(memory));
  const PartProduct<R> of_part(product, scratch);
  for (int64_t row = part.first_row; row < part.last_row; row += scratch.block_rows) {
    const int64_t rows = std::min(scratch.block_rows, part.last_row - row);
    for (int64_t column = part.first_column; column < part.last_column; column += scratch.group_columns)
      of_part.multiply_block(row, rows, column, std::min(scratch.group_columns, part.last_column - column));
  }
}

template <class R>
int64_t scratch_floats(const ProductArguments<BFloat16, R>& product, int64_t rows) {
  return TileScratch(product, rows, Arena(nullptr)).floats;
}

}  // namespace

extern const ProductKernel<BFloat16, BFloat16> product_bfloat16;
const ProductKernel<BFloat16, BFloat16> product_bfloat16{
    kSide, kSide, kSide, kPackingRows, scratch_floats<BFloat16>, multiply<BFloat16>};
extern const ProductKernel<BFloat16, float> product_bfloat16_in_float32;
const ProductKernel<BFloat16, float> product_bfloat16_in_float32{
    kSide, kSide, kSide, kPackingRows, scratch_floats<float>, multiply<float>};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu

#endif
