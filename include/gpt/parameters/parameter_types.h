// In which types parameters are kept.
#pragma once

#include <c10/core/ScalarType.h>

namespace gpt::parameters {

struct ParameterTypes {
  at::ScalarType compute = at::kFloat;   // what the model computes with: kFloat, or a type of 16 bits
  bool has_master = true;                // with 16 bits: float32 values too, which the others are rounded copies of
  at::ScalarType gradient = at::kFloat;  // kFloat, or that of 16 bits

  at::ScalarType kept() const { return has_master ? at::kFloat : compute; }
};

}  // namespace gpt::parameters
