#include "gpt/simd/cpu_capability.h"

#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>

#include <optional>
#include <string>

#include "gpt/device/cpu_bfloat16.h"
#include "gpt/device/host.h"

namespace gpt::ops::cpu {
namespace {

std::optional<Capability> instead;  // replaces known()

// The system must allow the use of the unit's large registers.
bool has_tiles() { return host::cpu_has_bfloat16_matrices() && dot_product_gain() > 0 && at::cpu::init_amx(); }

Capability known() {
  static const Capability best = [] {
    const std::string name = at::get_cpu_capability();
    if (name == "AVX512" && has_tiles()) return Capability::AVX512_AMX;
    if (name == "AVX512") return is_worthwhile(dot_product_gain()) ? Capability::AVX512_BF16 : Capability::AVX512;
    return name == "AVX2" ? Capability::AVX2 : Capability::DEFAULT;
  }();
  return best;
}

}  // namespace

Capability capability() { return instead.value_or(known()); }

WithCapability::WithCapability(Capability of_scope) { instead = of_scope; }
WithCapability::~WithCapability() { instead.reset(); }

}  // namespace gpt::ops::cpu
