#include "cpu_capability.h"

#include <ATen/Version.h>

#include <string>

namespace gpt::ops::cpu {

Capability capability() {
  static const Capability known = [] {
    const std::string name = at::get_cpu_capability();
    return name == "AVX512" ? Capability::AVX512 : name == "AVX2" ? Capability::AVX2 : Capability::DEFAULT;
  }();
  return known;
}

}  // namespace gpt::ops::cpu
