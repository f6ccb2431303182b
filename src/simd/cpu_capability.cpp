#include "gpt/simd/cpu_capability.h"

#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>

#include <optional>
#include <string_view>

#include "gpt/device/cpu_bfloat16.h"
#include "gpt/device/host.h"

namespace gpt::ops::cpu {
namespace {

std::optional<Capability> instead;  // replaces known()

// The system must allow the use of the unit's large registers.
bool has_tiles() { return host::cpu_has_bfloat16_matrices() && device::dot_product_gain() > 0 && at::cpu::init_amx(); }

Capability known() {
  static const Capability best = best_capability(at::get_cpu_capability(), device::dot_product_gain(), has_tiles);
  return best;
}

}  // namespace

Capability best_capability(std::string_view of_libtorch, double dot_product_gain, bool (*has_tiles)()) {
  if (of_libtorch != "AVX512") return of_libtorch == "AVX2" ? Capability::AVX2 : Capability::DEFAULT;
  if (has_tiles()) return Capability::AVX512_AMX;
  return device::is_worthwhile(dot_product_gain) ? Capability::AVX512_BF16 : Capability::AVX512;
}

Capability capability() { return instead.value_or(known()); }

WithCapability::WithCapability(Capability of_scope) { instead = of_scope; }
WithCapability::~WithCapability() { instead.reset(); }

}  // namespace gpt::ops::cpu
