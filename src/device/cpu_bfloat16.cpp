#include "gpt/device/cpu_bfloat16.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "gpt/device/host.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gpt::device {
namespace {

#if defined(__x86_64__)

constexpr int kRounds = 20, kRepetitions = 500;

// Twelve chains hide the latency of an operation, and the compiler can neither leave one out nor move it.
__attribute__((target("avx512f"))) void add_products() {
  const __m512 zero = _mm512_setzero_ps();
  __m512 s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero, s8 = zero, s9 = zero,
         s10 = zero, s11 = zero;
  __m512 a = zero;
  for (int i = 0; i < kRepetitions; ++i) {
    s0 = _mm512_fmadd_ps(a, a, s0), s1 = _mm512_fmadd_ps(a, a, s1), s2 = _mm512_fmadd_ps(a, a, s2);
    s3 = _mm512_fmadd_ps(a, a, s3), s4 = _mm512_fmadd_ps(a, a, s4), s5 = _mm512_fmadd_ps(a, a, s5);
    s6 = _mm512_fmadd_ps(a, a, s6), s7 = _mm512_fmadd_ps(a, a, s7), s8 = _mm512_fmadd_ps(a, a, s8);
    s9 = _mm512_fmadd_ps(a, a, s9), s10 = _mm512_fmadd_ps(a, a, s10), s11 = _mm512_fmadd_ps(a, a, s11);
    asm volatile(""
                 : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9),
                   "+v"(s10), "+v"(s11), "+v"(a));
  }
}

__attribute__((target("avx512f,avx512bf16"))) void add_dot_products() {
  const __m512 zero = _mm512_setzero_ps();
  __m512 s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero, s8 = zero, s9 = zero,
         s10 = zero, s11 = zero;
  __m512bh a = _mm512_cvtne2ps_pbh(zero, zero);
  for (int i = 0; i < kRepetitions; ++i) {
    s0 = _mm512_dpbf16_ps(s0, a, a), s1 = _mm512_dpbf16_ps(s1, a, a), s2 = _mm512_dpbf16_ps(s2, a, a);
    s3 = _mm512_dpbf16_ps(s3, a, a), s4 = _mm512_dpbf16_ps(s4, a, a), s5 = _mm512_dpbf16_ps(s5, a, a);
    s6 = _mm512_dpbf16_ps(s6, a, a), s7 = _mm512_dpbf16_ps(s7, a, a), s8 = _mm512_dpbf16_ps(s8, a, a);
    s9 = _mm512_dpbf16_ps(s9, a, a), s10 = _mm512_dpbf16_ps(s10, a, a), s11 = _mm512_dpbf16_ps(s11, a, a);
    asm volatile(""
                 : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9),
                   "+v"(s10), "+v"(s11), "+v"(a));
  }
}

double seconds_of(void (*work)()) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The fastest of each: whatever disturbs a run makes it slower.
double measure_gain() {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bf16")) return 0;
  double products = std::numeric_limits<double>::infinity(), dot_products = products;
  for (int round = 0; round < kRounds; ++round) {
    products = std::min(products, seconds_of(add_products));
    dot_products = std::min(dot_products, seconds_of(add_dot_products));
  }
  return 2 * products / dot_products;  // each adds two products
}

#else

double measure_gain() { return 0; }

#endif

}  // namespace

double dot_product_gain() {
  static const double known = measure_gain();
  return known;
}

CpuBfloat16 judge_bfloat16(bool has_instructions, bool has_matrices, double dot_product_gain) {
  if (!has_instructions) return CpuBfloat16::absent;
  return has_matrices || is_worthwhile(dot_product_gain) ? CpuBfloat16::fast : CpuBfloat16::slow;
}

CpuBfloat16 cpu_bfloat16() {
  static const CpuBfloat16 known =
      judge_bfloat16(host::cpu_has_bfloat16(), host::cpu_has_bfloat16_matrices(), dot_product_gain());
  return known;
}

}  // namespace gpt::device
