#include "cpu_capability.h"

#include <ATen/Version.h>

#include <string>

namespace gpt::ops::cpu {

Capability capability() {
  static const Capability known = [] {
    const std::string name = at::get_cpu_capability();
    if (name == "AVX512") return __builtin_cpu_supports("avx512bf16") ? Capability::AVX512_BF16 : Capability::AVX512;
    return name == "AVX2" ? Capability::AVX2 : Capability::DEFAULT;
  }();
  return known;
}

}  // namespace gpt::ops::cpu
