#include "quantized_product_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace gpt::ops::cpu {
inline namespace CPU_CAPABILITY {
namespace {

// A value for each row of a panel. The compiler makes as many vectors of them as the processor needs.
using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));

Floats floats(float value) { return value - Floats{}; }

Floats load_floats(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

// 16 values of bfloat16, which are the upper halves of float32.
Floats load_bfloat16(const uint8_t* from) {
  using Shorts = uint16_t __attribute__((vector_size(32)));
  Shorts values;
  std::memcpy(&values, from, sizeof values);
  const Ints wide = __builtin_convertvector(values, Ints) << 16;
  Floats result;
  std::memcpy(&result, &wide, sizeof result);
  return result;
}

#if defined(__AVX2__)

int32_t four_terms(const int8_t* x) {
  int32_t terms;
  std::memcpy(&terms, x, sizeof terms);
  return terms;
}

#endif

// Sums of products for the rows of a panel, and codes of it: `add_to` adds the products of 64 of them with four terms of x. A sum begins
// with `initial(sum of x's terms)`.
#if defined(__AVX512VNNI__)

struct Sums {
  __m512i all = _mm512_setzero_si512();
  Sums& operator+=(const Sums& other) { return all = _mm512_add_epi32(all, other.all), *this; }
  Floats as_floats() const { return reinterpret_cast<Floats>(_mm512_cvtepi32_ps(all)); }
};

struct Codes {
  __m512i all;
  // The instruction adds four products of a number without a sign and one that has one.
  void add_to(Sums& sums, const int8_t* x) const {
    sums.all = _mm512_dpbusd_epi32(sums.all, all, _mm512_set1_epi32(four_terms(x)));
  }
};

struct Int8Codes : Codes {
  explicit Int8Codes(const uint8_t* from) : Codes{_mm512_loadu_si512(from)} {}
  // Every code is too large by 128.
  static Sums initial(int32_t x_sum) { return {_mm512_set1_epi32(-128 * x_sum)}; }
};

struct Int4Codes : Codes {
  Int4Codes(const uint8_t* from, bool is_upper) : Codes{_mm512_loadu_si512(from)} {
    if (is_upper) all = _mm512_srli_epi16(all, 4);
    all = _mm512_and_si512(all, _mm512_set1_epi8(15));
  }
  static Sums initial(int32_t /*x_sum*/) { return {}; }
};

constexpr int kMostRows = 8;

#elif defined(__AVX2__)

struct Sums {
  __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
  Sums& operator+=(const Sums& other) {
    low = _mm256_add_epi32(low, other.low), high = _mm256_add_epi32(high, other.high);
    return *this;
  }
  Floats as_floats() const {
    const __m256 halves[] = {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
    return load_floats(reinterpret_cast<const float*>(halves));
  }
};

struct Codes {
  __m256i low, high;

 protected:
  static __m256i load(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  // Adds neighbours, which have 16 bits, to sums of 32 bits.
  static __m256i plus_pairs(__m256i sums, __m256i pairs) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

struct Int8Codes : Codes {
  explicit Int8Codes(const uint8_t* from) {
    const __m256i middle = _mm256_set1_epi8(-128);
    low = _mm256_xor_si256(load(from), middle), high = _mm256_xor_si256(load(from + 32), middle);
  }
  static Sums initial(int32_t /*x_sum*/) { return {}; }
  // The instruction adds two products of a number without a sign and one that has one, in 16 bits, where 2 * 127 * 127 has room. So the
  // codes take over the signs of x.
  void add_to(Sums& sums, const int8_t* x) const {
    const __m256i terms = _mm256_set1_epi32(four_terms(x)), magnitudes = _mm256_abs_epi8(terms);
    sums.low = plus_pairs(sums.low, _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(low, terms)));
    sums.high = plus_pairs(sums.high, _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(high, terms)));
  }
};

struct Int4Codes : Codes {
  Int4Codes(const uint8_t* from, bool is_upper) {
    const auto half = [&](const uint8_t* at) {
      return _mm256_and_si256(is_upper ? _mm256_srli_epi16(load(at), 4) : load(at), _mm256_set1_epi8(15));
    };
    low = half(from), high = half(from + 32);
  }
  static Sums initial(int32_t /*x_sum*/) { return {}; }
  void add_to(Sums& sums, const int8_t* x) const {
    const __m256i terms = _mm256_set1_epi32(four_terms(x));
    sums.low = plus_pairs(sums.low, _mm256_maddubs_epi16(low, terms));
    sums.high = plus_pairs(sums.high, _mm256_maddubs_epi16(high, terms));
  }
};

constexpr int kMostRows = 4;

#else

// In float32, which holds such sums exactly: every processor multiplies it in vectors.
struct Sums {
  Floats all = {};
  Sums& operator+=(const Sums& other) { return all += other.all, *this; }
  Floats as_floats() const { return all; }
};

struct Codes {
  Floats terms[4];

  void add_to(Sums& sums, const int8_t* x) const {
    for (int i = 0; i < 4; ++i) sums.all += terms[i] * floats(x[i]);
  }

 protected:
  // 64 bytes, of which each 32 bits are four terms of a row.
  static Ints load(const uint8_t* from) {
    Ints bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return bytes;
  }
};

struct Int8Codes : Codes {
  explicit Int8Codes(const uint8_t* from) {
    const Ints bytes = load(from);
    for (int i = 0; i < 4; ++i) terms[i] = __builtin_convertvector((bytes >> (8 * i) & 255) - 128, Floats);
  }
  static Sums initial(int32_t /*x_sum*/) { return {}; }
};

struct Int4Codes : Codes {
  Int4Codes(const uint8_t* from, bool is_upper) {
    const Ints bytes = load(from);
    for (int i = 0; i < 4; ++i) terms[i] = __builtin_convertvector(bytes >> (8 * i + (is_upper ? 4 : 0)) & 15, Floats);
  }
  static Sums initial(int32_t /*x_sum*/) { return {}; }
};

constexpr int kMostRows = 4;

#endif

// A panel on the way from its beginning to its end, and what its products become. `first` and `second`: the codes of four terms each.
struct Int8Panel {
  static int64_t bytes(int64_t terms) { return panel_bytes_int8(terms); }
  using Codes = Int8Codes;

  const uint8_t* next;
  Floats scales = {};

  explicit Int8Panel(const uint8_t* panel) : next(panel) {}
  void begin_group() {
    scales = load_floats(reinterpret_cast<const float*>(next));
    next += kPanelStep;
  }
  Codes first() const { return Codes(next); }
  Codes second() const { return Codes(next + kPanelStep); }
  void advance() { next += 2 * kPanelStep; }
  Floats of_group(Floats products, float /*x_sum*/) const { return products * scales; }
};

struct Int4Panel {
  static int64_t bytes(int64_t terms) { return panel_bytes_int4(terms); }
  using Codes = Int4Codes;

  const uint8_t* next;
  Floats scales = {}, offsets = {};

  explicit Int4Panel(const uint8_t* panel) : next(panel) {}
  void begin_group() {
    scales = load_bfloat16(next), offsets = load_bfloat16(next + kPanelStep / 2);
    next += kPanelStep;
  }
  Codes first() const { return Codes(next, false); }
  Codes second() const { return Codes(next, true); }
  void advance() { next += kPanelStep; }
  Floats of_group(Floats products, float x_sum) const { return products * scales + offsets * floats(x_sum); }
};

void store(const QuantizedProductArguments& of, Floats sums, int64_t row, int64_t column) {
  const int64_t count = std::min(kPanelRows, of.N - column);
  float* to = of.y + row * of.N + column;
  if (count == kPanelRows) {
    if (of.bias) sums += load_floats(of.bias + column);
    std::memcpy(to, &sums, sizeof sums);
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i] = of.bias ? sums[i] + of.bias[column + i] : sums[i];
}

// A few rows of x times a panel, in one pass over it. The products of a group are whole numbers and exact. Few rows have two sums each, so
// that an addition need not wait for the one before.
template <class Panel, int kRows>
void multiply_tile(const QuantizedProductArguments& of, int64_t panel_number, int64_t row) {
  constexpr int kSums = kRows <= 2 ? 2 : 1;
  const int64_t groups = activation_groups(of.K);
  Panel panel(of.panels + panel_number * Panel::bytes(of.K));
  Floats sums[kRows] = {};
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = group * kActivationGroup, end = std::min(of.K, begin + kActivationGroup);
    const int8_t* x = of.x + row * of.K;
    Sums products[kRows][kSums];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) products[i][0] = Panel::Codes::initial(of.x_sums[(row + i) * groups + group]);
    if (begin % kQuantizedGroup == 0) panel.begin_group();
    for (int64_t k = begin; k < end; k += kTerms) {
      const auto first = panel.first();
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) first.add_to(products[i][0], x + i * of.K + k);
      const auto second = panel.second();
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) second.add_to(products[i][kSums - 1], x + i * of.K + k + 4);
      panel.advance();
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const int64_t place = (row + i) * groups + group;
      if (kSums == 2) products[i][0] += products[i][1];
      const Floats of_group = panel.of_group(products[i][0].as_floats(), static_cast<float>(of.x_sums[place]));
      sums[i] += of_group * floats(of.x_scales[place]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) store(of, sums[i], row + i, panel_number * kPanelRows);
}

template <class Panel>
void multiply_rows(const QuantizedProductArguments& of, int64_t panel, int64_t row, int64_t end) {
  if constexpr (kMostRows == 8)
    for (; row + 8 <= end; row += 8) multiply_tile<Panel, 8>(of, panel, row);
  for (; row + 4 <= end; row += 4) multiply_tile<Panel, 4>(of, panel, row);
  if (row + 2 <= end) multiply_tile<Panel, 2>(of, panel, row), row += 2;
  if (row < end) multiply_tile<Panel, 1>(of, panel, row);
}

// As many rows of x at a time as stay in a cache of the core beside a panel.
template <class Panel>
void multiply(const QuantizedProductArguments& of, int64_t first_panel, int64_t last_panel) {
  constexpr int64_t kBlockBytes = 1 << 18;
  const int64_t block = std::max<int64_t>(kMostRows, kBlockBytes / of.K / kMostRows * kMostRows);
  for (int64_t row = 0; row < of.M; row += block) {
    for (int64_t panel = first_panel; panel < last_panel; ++panel)
      multiply_rows<Panel>(of, panel, row, std::min(of.M, row + block));
  }
}

void quantize_group(const float* x, int64_t count, int8_t* codes, float& scale, int32_t& sum) {
  constexpr float kMost = 127;
  constexpr float kRounds = 12582912;  // 1.5 * 2^23: adding it leaves no room for a fraction
  float most = 0, poison = 0;          // the latter is not a number where one is not finite
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(x[i])), poison += x[i] * 0;
  const float inverse = kMost / most;
  sum = 0;
  // Also where all are nothing, or so little that this has no inverse.
  if (poison != 0 || inverse > std::numeric_limits<float>::max()) {
    std::fill_n(codes, count, int8_t{0});
    scale = poison;
    return;
  }
  scale = most / kMost;
  for (int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<int8_t>(static_cast<int32_t>(x[i] * inverse + kRounds - kRounds));
  for (int64_t i = 0; i < count; ++i) sum += codes[i];
}

void quantize_row(const float* x, int64_t count, int64_t terms, int8_t* codes, float* scales, int32_t* sums) {
  for (int64_t begin = 0, group = 0; begin < count; begin += kActivationGroup, ++group)
    quantize_group(x + begin, std::min(kActivationGroup, count - begin), codes + begin, scales[group], sums[group]);
  std::fill(codes + count, codes + terms, int8_t{0});
}

}  // namespace

extern const QuantizedProductKernel quantized_product;
const QuantizedProductKernel quantized_product = {quantize_row, multiply<Int8Panel>, multiply<Int4Panel>};

}  // namespace CPU_CAPABILITY
}  // namespace gpt::ops::cpu
