#include "int8_product_kernel.h"

#include <algorithm>
#include <cstring>
#include <limits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

using c10::BFloat16;

// A value for each column of a panel. The compiler makes as many vectors of them as the processor needs.
using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Shorts = uint16_t __attribute__((vector_size(32)));

template <class Vector>
Vector load(const void* from) {
  Vector values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

template <class To, class From>
To as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  return load<To>(&from);
}

int32_t four_terms(const int8_t* codes) {
  int32_t terms;
  std::memcpy(&terms, codes, sizeof terms);
  return terms;
}

// Sums of products for the columns of a panel; `add` adds the products of 64 codes of it with four of a row. `Codes` and `Terms` are what
// both are made into. kRows, kPanels: of a tile, whose sums, codes and one row's terms are in registers together.
#if defined(__AVX512VNNI__)

// The instruction adds four products of a number without a sign and one that has one.
constexpr int8_t kOffset = -128;  // which is 128 without a sign

using Codes = __m512i;
using Terms = __m512i;
Codes codes_at(const int8_t* from) { return _mm512_load_si512(from); }
Terms terms_of(int32_t four) { return _mm512_set1_epi32(four); }

struct Sums {
  __m512i all = {};
  Sums() = default;
  explicit Sums(const int32_t* from) : all(_mm512_loadu_si512(from)) {}
  void add(Codes codes, Terms terms) { all = _mm512_dpbusd_epi32(all, terms, codes); }
  void store(int32_t* to) const { _mm512_storeu_si512(to, all); }
};

constexpr int kRows = 8, kPanels = 3;

#elif defined(__AVX2__)

// The instruction adds two products of a number without a sign and one that has one, in 16 bits, where 2 * 127 * 127 has room. So the
// codes take over the signs of the terms.
constexpr int8_t kOffset = 0;

struct Codes {
  __m256i low, high;
};
struct Terms {
  __m256i all, magnitudes;
};
Codes codes_at(const int8_t* from) { return {load<__m256i>(from), load<__m256i>(from + 32)}; }
Terms terms_of(int32_t four) {
  const __m256i all = _mm256_set1_epi32(four);
  return {all, _mm256_abs_epi8(all)};
}

struct Sums {
  __m256i low = {}, high = {};
  Sums() = default;
  explicit Sums(const int32_t* from) : low(load<__m256i>(from)), high(load<__m256i>(from + 8)) {}
  void add(const Codes& codes, const Terms& terms) {
    const auto products = [&terms](__m256i of) {
      const __m256i pairs = _mm256_maddubs_epi16(terms.magnitudes, _mm256_sign_epi8(of, terms.all));
      return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    };
    low = _mm256_add_epi32(low, products(codes.low)), high = _mm256_add_epi32(high, products(codes.high));
  }
  void store(int32_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), high);
  }
};

constexpr int kRows = 4, kPanels = 1;

#else

constexpr int8_t kOffset = 0;

struct Codes {
  Ints terms[4];
};
using Terms = int32_t;
Codes codes_at(const int8_t* from) {
  const auto fours = load<Ints>(from);
  Codes codes;
  for (int i = 0; i < 4; ++i) codes.terms[i] = fours << (24 - 8 * i) >> 24;
  return codes;
}
Terms terms_of(int32_t four) { return four; }

struct Sums {
  Ints all = {};
  Sums() = default;
  explicit Sums(const int32_t* from) : all(load<Ints>(from)) {}
  void add(const Codes& codes, Terms four) {
    for (int i = 0; i < 4; ++i) {
      const auto term = static_cast<int8_t>(static_cast<uint32_t>(four) >> (8 * i));
      all += codes.terms[i] * static_cast<int32_t>(term);
    }
  }
  void store(int32_t* to) const { std::memcpy(to, &all, sizeof all); }
};

constexpr int kRows = 4, kPanels = 1;

#endif

Floats floats_at(const float* from) { return load<Floats>(from); }
Floats floats_at(const BFloat16* from) { return as<Floats>(__builtin_convertvector(load<Shorts>(from), Ints) << 16); }

void put(float* to, const Floats& values) { std::memcpy(to, &values, sizeof values); }
// Rounded to nearest, ties to even. What is not a number here has a bit that rounding does not carry out of.
void put(BFloat16* to, const Floats& values) {
  const Ints bits = as<Ints>(values), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const Shorts halves = __builtin_convertvector(rounded & 0xffff, Shorts);
  std::memcpy(to, &halves, sizeof halves);
}

// The columns of a panel in a row of the result.
template <class R>
void write(const Int8Arguments& of, const int32_t* sums, int64_t row, int64_t panel, bool adds, R* result) {
  const int64_t column = panel * kInt8Columns, count = std::min(kInt8Columns, of.columns - column);
  const Floats scales = floats_at(of.panel_scales + column) * of.scales[row];
  Floats values = __builtin_convertvector(load<Ints>(sums), Floats) * scales;
  R* to = result + row * of.columns + column;
  if (count == kInt8Columns) {
    if (of.bias) values += floats_at(of.bias + column);
    if (adds) values += floats_at(to);
    return put(to, values);
  }
  R whole[kInt8Columns] = {};
  Floats bias = {};
  std::copy_n(to, count, whole);
  if (of.bias) std::memcpy(&bias, of.bias + column, static_cast<size_t>(count) * sizeof(float));
  values += bias;
  if (adds) values += floats_at(whole);
  put(whole, values);
  std::copy_n(whole, count, to);
}

template <int kRows, int kPanels, class R>
void multiply_tile(const Int8Arguments& of, int64_t row, int64_t panel, bool adds, R* result) {
  const int64_t panel_codes = of.terms * kInt8Columns;
  const int8_t *codes = of.codes + row * of.stride, *panels = of.panels + panel * panel_codes;
  const int32_t* initial = of.corrections + panel * kInt8Columns;
  Sums sums[kRows][kPanels] = {};
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int p = 0; p < kPanels; ++p) sums[r][p] = Sums(initial + p * kInt8Columns);
  }
  for (int64_t k = 0; k < of.terms; k += 4) {
    Codes columns[kPanels];
#pragma GCC unroll 3
    for (int p = 0; p < kPanels; ++p) columns[p] = codes_at(panels + p * panel_codes + k * kInt8Columns);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Terms terms = terms_of(four_terms(codes + r * of.stride + k));
#pragma GCC unroll 3
      for (int p = 0; p < kPanels; ++p) sums[r][p].add(columns[p], terms);
    }
  }
  // By way of memory, so that the loop above has them in registers.
  int32_t found[kRows][kPanels][kInt8Columns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int p = 0; p < kPanels; ++p) sums[r][p].store(found[r][p]);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) write(of, found[r][p], row + r, panel + p, adds, result);
  }
}

template <int kPanels, class R>
void multiply_rows(const Int8Arguments& of, int64_t row, int64_t end, int64_t panel, bool adds, R* result) {
  for (; row + kRows <= end; row += kRows) multiply_tile<kRows, kPanels>(of, row, panel, adds, result);
  for (; row < end; ++row) multiply_tile<1, kPanels>(of, row, panel, adds, result);
}

// As many rows at a time as stay in a cache of the core beside the panels of a tile.
template <class R>
void multiply(const Int8Arguments& of, const Int8Part& part, bool adds, R* result) {
  constexpr int64_t kBlockBytes = 1 << 18;
  const int64_t block = std::max<int64_t>(kRows, kBlockBytes / of.stride / kRows * kRows);
  for (int64_t row = part.first_row; row < part.last_row; row += block) {
    const int64_t end = std::min(row + block, part.last_row);
    int64_t panel = part.first_panel;
    for (; panel + kPanels <= part.last_panel; panel += kPanels)
      multiply_rows<kPanels>(of, row, end, panel, adds, result);
    for (; panel < part.last_panel; ++panel) multiply_rows<1>(of, row, end, panel, adds, result);
  }
}

// The largest of the magnitudes, as the bits of a float32: their order is that of whole numbers, and above all others is what is not finite.
int32_t largest_magnitude(const float* row, int64_t count) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    std::memcpy(&bits, row + i, sizeof bits);
    most = std::max(most, bits & 0x7fffffff);
  }
  return most;
}
int32_t largest_magnitude(const BFloat16* row, int64_t count) {
  uint16_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max<uint16_t>(most, row[i].x & 0x7fff);
  return most << 16;
}

template <class T>
void round_values(const T* from, float inverse, int32_t offset, int8_t* codes) {
  constexpr float kRounds = 12582912;  // 1.5 * 2^23: adding it leaves no room for a fraction
  using Bytes = int8_t __attribute__((vector_size(16)));
  const Floats rounded = floats_at(from) * inverse + kRounds - kRounds;
  const Bytes bytes = __builtin_convertvector(__builtin_convertvector(rounded, Ints) + offset, Bytes);
  std::memcpy(codes, &bytes, sizeof bytes);
}

template <class T>
float round_row(const T* row, int64_t count, int64_t terms, bool is_first, int8_t* codes) {
  constexpr float kMost = 127;
  constexpr int64_t kValues = sizeof(Floats) / sizeof(float);
  const int8_t offset = is_first ? kOffset : int8_t{0};
  const float most = as<float>(largest_magnitude(row, count)), inverse = kMost / most;
  // Also where all are nothing, or so little that this has no inverse.
  constexpr float kLargest = std::numeric_limits<float>::max();
  const bool is_finite = most <= kLargest;
  if (!is_finite || inverse > kLargest) {
    std::fill_n(codes, terms, offset);
    return is_finite ? 0 : std::numeric_limits<float>::quiet_NaN();
  }
  int64_t i = 0;
  for (; i + kValues <= count; i += kValues) round_values(row + i, inverse, offset, codes + i);
  if (i < count) {
    T rest[kValues] = {};
    std::copy(row + i, row + count, rest);
    round_values(rest, inverse, offset, codes + i), i += kValues;
  }
  std::fill(codes + i, codes + terms, offset);
  return most / kMost;
}

void pack(const int8_t* codes, int64_t terms, int8_t* panel, int32_t* corrections) {
  for (int64_t column = 0; column < kInt8Columns; ++column) {
    const int8_t* row = codes + column * terms;
    int32_t sum = 0;
    for (int64_t k = 0; k < terms; ++k) sum += row[k];
    corrections[column] = kOffset * sum;
    for (int64_t k = 0; k < terms; k += 4) std::memcpy(panel + k * kInt8Columns + 4 * column, row + k, 4);
  }
}

}  // namespace

extern const Int8Kernel int8_product;
const Int8Kernel int8_product = {round_row<float>, round_row<BFloat16>, pack, multiply<float>, multiply<BFloat16>};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
