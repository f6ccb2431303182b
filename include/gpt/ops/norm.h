// A block's end and the next one's beginning in one pass: the residual sum, with the dropout of what is added, and its
// normalization. The backward pass computes the normalization anew from the sum and draws the dropout mask anew, so that
// besides the sum two numbers for each row are kept.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/kept_bytes.h"
#include "gpt/ops/operators.h"

namespace gpt::ops {

// sum = x + dropout(branch) and normed = norm(sum), both of the type of x: float32, bfloat16 or, on a GPU, float16. The arithmetic
// is float32.
//
//   x: (..., C).
//   branch: of the shape of x, and of its type or, where x is float32, of a 16-bit type, as autocast leaves a product. Undefined:
//     sum is x.
//   dropout: of the branch. A sample of x (..., T, C) has T rows.
//
// Differentiable once. The gradients of weight and bias are added to the parameters' own memory. Throws c10::Error for shapes or
// types that do not fit.
Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch = {},
                    const DropoutSpec& dropout = {});
// The same by LibTorch's operators, for all types and rows of any length; differentiable as they are.
Normalized aten_add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                         const DropoutSpec& dropout);

// The sum, and the output as the following product takes it, unless that computes it again.
inline double norm_kept_bytes(const KeptForm& form, Norm kind, int64_t columns, bool keeps_output = true) {
  double bytes = form.sum_size + (keeps_output ? form.value_size : 0);
  // On a CPU ATen has no fused RMSNorm: it keeps x / rms(x) too, and an x of 16 bits in float32.
  if (kind == Norm::rmsnorm && !form.own && !form.cuda) bytes += (form.sum_size < kFloatBytes ? 2 : 1) * kFloatBytes;
  return bytes * static_cast<double>(columns);
}

}  // namespace gpt::ops
