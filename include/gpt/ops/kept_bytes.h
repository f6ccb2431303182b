// What a training step keeps of its forward pass for its backward pass. Each operator states it beside its own code, as a function
// ..._kept_bytes() for one token, and plan/estimates adds it up.
#pragma once

#include <cstdint>

namespace gpt::ops {

inline constexpr double kFloatBytes = 4;

struct KeptForm {
  bool own = true;        // this program's operators, otherwise LibTorch's
  bool cuda = false;      // on a GPU, otherwise on a CPU
  double value_size = 4;  // bytes of what products take and give
  double sum_size = 4;    // of the residual stream
};

// The mask of a dropout of `width` values; our own operators draw it again.
inline double dropout_kept_bytes(const KeptForm& form, double probability, int64_t width) {
  if (probability == 0 || form.own) return 0;
  return (form.cuda ? 1 : form.value_size) * static_cast<double>(width);  // LibTorch's masks on a CPU are values
}

}  // namespace gpt::ops
