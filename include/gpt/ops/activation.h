// The nonlinearity between the two products of an MLP, in one pass. The backward pass computes it anew from what went in, and
// draws its dropout mask anew, so that nothing else is kept.
#pragma once

#include <ATen/core/Tensor.h>

#include "gpt/ops/kept_bytes.h"
#include "gpt/ops/operators.h"

namespace gpt::ops {

// act(x), of the shape and type of x: float32, bfloat16 or, on a GPU, float16. Sums are float32.
at::Tensor activate(Activation activation, const at::Tensor& x);

// The same of an x for which a product has computed it already: returns `y`, with the gradient of activate(). The product may have
// rounded it differently, from an x that had more bits.
at::Tensor activated(Activation activation, const at::Tensor& x, const at::Tensor& y);

// act(gate) * in, of two tensors of one shape and type: SwiGLU or GeGLU.
//
//   dropout: of the result. A sample of the tensors (..., T, C) has T rows.
//
// All are differentiable once. Throws c10::Error for shapes or types that do not fit.
at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in,
                          const DropoutSpec& dropout = {});

// What goes in, and the result unless the following product computes it again. LibTorch's operators also keep a gate after its
// activation, and the mask of a dropout.
inline double activation_kept_bytes(const KeptForm& form, int64_t columns, bool keeps_result = true) {
  return (keeps_result ? 2 : 1) * form.value_size * static_cast<double>(columns);
}
inline double gated_activation_kept_bytes(const KeptForm& form, int64_t columns, double dropout,
                                          bool keeps_result = true) {
  const int values = 2 + (form.own ? 0 : 1) + (keeps_result ? 1 : 0);
  return values * form.value_size * static_cast<double>(columns) + dropout_kept_bytes(form, dropout, columns);
}

// y = GELU(x) by the device's kernel, without autograd, for tensors of one type and shape.
void gelu_out(const at::Tensor& x, const at::Tensor& y);

// Multiplies the gradient of GELU(x), (M, N), by the slope at x, in place, and writes the sums of its columns to `sums` (N).
void gelu_backward(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& sums);

}  // namespace gpt::ops
