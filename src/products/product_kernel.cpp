#include "product_kernel.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <array>
#include <bit>

#include "gpt/simd/arena.h"
#include "gpt/simd/matrix_tile.h"
#include "gpt/simd/pairs.h"

// A panel of the second factor, so many columns as have their sums in registers beside kTileRows rows, is packed into memory that stays
// in a cache of the core, and all rows of the first factor are multiplied with it. Those are read where they lie, unless the first factor
// is transposed: then tiles of it are packed once, as their neighbouring terms are far apart. What is left of the registers holds a row
// of the panel and a broadcast value.

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

// 24 sums of AVX-512's 32 registers, 12 of AVX2's 16.
constexpr int64_t kMostVectors = kLanes == 16 ? 3 : 2;
constexpr int64_t kPanelColumns = kMostVectors * kLanes;

constexpr int64_t kPackingRows = 16;
constexpr int64_t kPanelTerms = 1024;         // terms of a panel in its cache; longer sums are kept between panels
constexpr int64_t kPackedElements = 1 << 18;  // elements of a packed first factor
constexpr int64_t kMostRows = 1024;           // rows that go through a panel together

// What a part is computed with. E: what the factors are made of.
template <class E>
struct ProductScratch {
  int64_t terms, panels, panel_terms;  // terms of the sums; how many panels follow each other along them; terms of one
  int64_t block_rows;                  // rows of the result that go through a panel together, at most
  MatrixOf<E> panel;                   // (panel_terms, kPanelColumns)
  MatrixOf<E> packed;                  // (tiles of kTileRows rows, terms x kTileRows)
  Matrix sums;                         // (block_rows, kPanelColumns)
  int64_t floats;

  template <class Arguments>
  ProductScratch(const Arguments& product, int64_t rows, Arena arena)
      : terms(divide_up(product.K, Operand<E>::kValues)),
        panels(divide_up(terms, kPanelTerms)),
        panel_terms(divide_up(terms, panels)) {
    const int64_t most = product.a.is_transposed ? std::max(kTileRows, kPackedElements / terms) : kMostRows;
    block_rows = round_up(std::min(rows, most), kTileRows);
    panel = arena.elements<E>(panel_terms, kPanelColumns);
    packed = arena.elements<E>(product.a.is_transposed ? block_rows / kTileRows : 1, terms * kTileRows);
    sums = arena.matrix(panels > 1 ? block_rows : 0, kPanelColumns);
    floats = arena.used();
  }
};

// Terms that follow each other along the sums, from `begin` to before `end`, for `columns` columns from `column` on; the others of
// the kVectors vectors are 0.
template <int kVectors>
void pack_panel(const ProductFactor<float>& b, int64_t begin, int64_t end, int64_t column, int64_t columns,
                int64_t /*K*/, float* to) {
  constexpr int64_t kStride = kVectors * kLanes;
  int64_t whole = 0;  // columns that need no more
  if (b.is_transposed) {
    const int64_t tiles = round_down(end - begin, kColumns);
    for (; whole + kColumns <= columns; whole += kColumns) {
      for (int64_t k = 0; k < tiles; k += kColumns) {
        transpose_tile(b.at(begin + k, column + whole), b.stride, to + k * kStride + whole, kStride);
      }
      for (int64_t k = tiles; k < end - begin; ++k) {
        for (int64_t j = whole; j < whole + kColumns; ++j) to[k * kStride + j] = *b.at(begin + k, column + j);
      }
    }
  } else {
    whole = round_down(columns, kLanes);
    for (int64_t k = 0; k < end - begin; ++k) {
      const float* from = b.at(begin + k, column);
      for (int64_t j = 0; j < whole; j += kLanes) FloatVector::loadu(from + j).store(to + k * kStride + j);
    }
  }
  if (whole == kStride) return;
  for (int64_t k = 0; k < end - begin; ++k) {
    for (int64_t j = whole; j < kStride; ++j) { to[k * kStride + j] = j < columns ? *b.at(begin + k, column + j) : 0; }
  }
}

// The first factor's rows in tiles of kTileRows, whose values of each term lie next to each other; 0 follows the last row. Where it is
// transposed, all tiles that share a cache line of it are packed together.
constexpr int64_t kStripRows = round_down(32, kTileRows);

void pack_rows(const ProductFactor<float>& a, int64_t row, int64_t rows, int64_t terms, int64_t /*K*/, Matrix to) {
  for (int64_t strip = 0; strip < rows; strip += kStripRows) {
    const int64_t end = std::min(rows, strip + kStripRows);
    for (int64_t k = 0; k < terms; ++k) {
      for (int64_t r = strip; r < end; r += kTileRows) {
        float* tile = to.row(r / kTileRows) + k * kTileRows;
        if (a.is_transposed && r + kTileRows <= end) {
          std::copy_n(a.at(row + r, k), kTileRows, tile);
        } else {
          for (int64_t i = 0; i < kTileRows; ++i) tile[i] = r + i < rows ? *a.at(row + r + i, k) : 0;
        }
      }
    }
  }
}

FloatVector load_values(const float* from, int64_t count) { return FloatVector::loadu(from, count); }
void store_values(float* to, int64_t count, FloatVector values) { values.store(to, static_cast<int>(count)); }

#ifdef __AVX512BF16__

using c10::BFloat16;

template <int kVectors>
void pack_panel(const ProductFactor<BFloat16>& b, int64_t begin, int64_t end, int64_t column, int64_t columns,
                int64_t K, BFloat16Pair* to) {
  constexpr int64_t kStride = kVectors * kLanes;
  if (b.is_transposed) {  // pairs lie where they are, and are moved as floats
    const auto* pairs = reinterpret_cast<const float*>(b.data);
    const ProductFactor<float> from{pairs, b.stride / 2, true};
    return pack_panel<kVectors>(from, begin, end, column, columns, K / 2, reinterpret_cast<float*>(to));
  }
  const bool is_whole = columns == kStride;
  for (int64_t k = begin; k < end; ++k) {
    const BFloat16 *low = b.at(2 * k, column), *high = 2 * k + 1 < K ? low + b.stride : nullptr;
    BFloat16Pair* pairs = to + (k - begin) * kStride;
#pragma GCC unroll 3
    for (int64_t v = 0; v < kStride; v += kLanes) {
      const int64_t count = std::clamp<int64_t>(columns - v, 0, kLanes), place = count > 0 ? v : 0;
      const BFloat16* second = high ? high + place : nullptr;
      _mm512_storeu_si512(pairs + v,
                          is_whole ? interleaved(low + v, second, Whole()) : interleaved(low + place, second, count));
    }
  }
}

void pack_rows(const ProductFactor<BFloat16>& a, int64_t row, int64_t rows, int64_t terms, int64_t K, Pairs to) {
  static_assert(2 * kTileRows == kLanes);
  if (!a.is_transposed) {  // pairs lie where they are, and are moved as floats
    const ProductFactor<float> from{reinterpret_cast<const float*>(a.data), a.stride / 2, false};
    return pack_rows(from, row, rows, terms, K / 2, {reinterpret_cast<float*>(to.data), to.stride});
  }
  const auto store = [&](int64_t r, int64_t k, __m256i half) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.row(r / kTileRows) + k * kTileRows), half);
  };
  for (int64_t strip = 0; strip < rows; strip += kStripRows) {
    const int64_t count = std::min(kStripRows, rows - strip);
    for (int64_t k = 0; k < terms; ++k) {
      const BFloat16 *low = a.at(row + strip, 2 * k), *high = 2 * k + 1 < K ? low + a.stride : nullptr;
      for (int64_t r = 0; r < count; r += kLanes) {
        const BFloat16* second = high ? high + r : nullptr;
        const __m512i pairs =
            r + kLanes <= count ? interleaved(low + r, second, Whole()) : interleaved(low + r, second, count - r);
        store(strip + r, k, _mm512_castsi512_si256(pairs));
        if (r + kTileRows < count) store(strip + r + kTileRows, k, _mm512_extracti64x4_epi64(pairs, 1));
      }
    }
  }
}

FloatVector load_values(const BFloat16* from, int64_t count) {
  const __m256i values = count == kLanes ? load_bfloat16(from, Whole()) : load_bfloat16(from, count);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

void store_values(BFloat16* to, int64_t count, FloatVector values) {
  const auto rounded = std::bit_cast<__m256i>(_mm512_cvtneps_pbh(values));
  if (count == kLanes) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
  const auto each = std::bit_cast<std::array<BFloat16, kLanes>>(rounded);
  std::copy_n(each.begin(), count, to);
}

#endif

// One panel of the second factor, and where its sums go.
template <class T, class R>
class PanelProduct {
  using E = FactorOf<T>;

 public:
  PanelProduct(const ProductArguments<T, R>& product, const ProductScratch<E>& scratch)
      : product_(product), scratch_(scratch) {}

  // For the rows from `row` on and the columns from `column` on.
  template <int kVectors>
  void multiply(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    for (int64_t begin = 0; begin < scratch_.terms; begin += scratch_.panel_terms) {
      const int64_t end = std::min(scratch_.terms, begin + scratch_.panel_terms);
      pack_panel<kVectors>(product_.b, begin, end, column, columns, product_.K, scratch_.panel.data);
      for (int64_t r = 0; r < rows; r += kTileRows) {
        const int64_t count = std::min(kTileRows, rows - r);
        TileSums<kTileRows, kVectors> sums;
        float* kept = scratch_.sums.row(r);
        sums.for_each([&](int64_t i, int64_t v, FloatVector& sum) {
          sum = begin > 0 ? FloatVector::loadu(kept + i * kPanelColumns + v * kLanes) : FloatVector(0.0f);
        });
        add_products(sums, row + r, r / kTileRows, count, begin, end);
        if (end < scratch_.terms) {
          sums.for_each(
              [&](int64_t i, int64_t v, FloatVector& sum) { sum.store(kept + i * kPanelColumns + v * kLanes); });
        } else {
          write(sums, row + r, count, column, columns);
        }
      }
    }
  }

 private:
  template <class Sums>
  __attribute__((always_inline)) void add_products(Sums& sums, int64_t row, int64_t tile, int64_t rows, int64_t begin,
                                                   int64_t end) const {
    const auto& a = product_.a;
    constexpr int64_t kStride = Sums::kColumns;
    if (a.is_transposed || rows < kTileRows) {
      const E* packed = scratch_.packed.row(a.is_transposed ? tile : 0) + begin * kTileRows;
      sums.template add_products<true>(packed, kTileRows, scratch_.panel.data, kStride, 0, end - begin);
    } else {
      const E* from = reinterpret_cast<const E*>(a.at(row, 0)) + begin;
      sums.template add_products<false>(from, a.stride / Operand<E>::kValues, scratch_.panel.data, kStride, 0,
                                        end - begin);
    }
  }

  template <class Sums>
  __attribute__((always_inline)) void write(Sums& sums, int64_t row, int64_t rows, int64_t column,
                                            int64_t columns) const {
    sums.for_each([&](int64_t i, int64_t v, FloatVector& sum) {
      const int64_t count = std::min(kLanes, columns - v * kLanes);
      if (i >= rows || count <= 0) return;
      R* to = product_.result + (row + i) * product_.result_stride + column + v * kLanes;
      if (product_.bias) sum = sum + load_values(product_.bias + column + v * kLanes, count);
      if (product_.adds) sum = sum + load_values(to, count);
      store_values(to, count, sum);
    });
  }

  const ProductArguments<T, R>& product_;
  const ProductScratch<E>& scratch_;
};

template <class T, class R>
void multiply(const ProductArguments<T, R>& product, const ProductPart& part, float* memory) {
  const ProductScratch<FactorOf<T>> scratch(product, part.last_row - part.first_row, Arena(memory));
  const PanelProduct<T, R> panel(product, scratch);
  for (int64_t row = part.first_row; row < part.last_row; row += scratch.block_rows) {
    const int64_t rows = std::min(scratch.block_rows, part.last_row - row);
    const int64_t unpacked = product.a.is_transposed ? 0 : round_down(rows, kTileRows);
    pack_rows(product.a, row + unpacked, rows - unpacked, scratch.terms, product.K, scratch.packed);
    for (int64_t column = part.first_column; column < part.last_column; column += kPanelColumns) {
      const int64_t columns = std::min(kPanelColumns, part.last_column - column);
      switch (divide_up(columns, kLanes)) {
        case 1: panel.template multiply<1>(row, rows, column, columns); break;
        case 2: panel.template multiply<2>(row, rows, column, columns); break;
        default: panel.template multiply<kMostVectors>(row, rows, column, columns);
      }
    }
  }
}

template <class T, class R>
int64_t scratch_floats(const ProductArguments<T, R>& product, int64_t rows) {
  return ProductScratch<FactorOf<T>>(product, rows, Arena(nullptr)).floats;
}

void transpose(const float* a, int64_t stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  const int64_t whole_rows = round_down(rows, kColumns), whole_columns = round_down(columns, kColumns);
  for (int64_t i = 0; i < whole_rows; i += kColumns) {
    for (int64_t j = 0; j < whole_columns; j += kColumns)
      transpose_tile(a + i * stride + j, stride, to + j * to_stride + i, to_stride);
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) to[j * to_stride + i] = a[i * stride + j];
  }
}

}  // namespace

#define GPT_PRODUCT_KERNEL(T, R, name)   \
  extern const ProductKernel<T, R> name; \
  const ProductKernel<T, R> name{kTileRows, kLanes, kPanelColumns, kPackingRows, scratch_floats<T, R>, multiply<T, R>};
GPT_PRODUCT_KERNEL(float, float, product_float32)
extern const TransposeKernel transpose_float32;
const TransposeKernel transpose_float32 = transpose;
#ifdef __AVX512BF16__
GPT_PRODUCT_KERNEL(BFloat16, BFloat16, product_bfloat16)
GPT_PRODUCT_KERNEL(BFloat16, float, product_bfloat16_in_float32)
#endif

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
