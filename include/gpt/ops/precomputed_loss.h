// A mean loss whose forward pass computes the gradients too, as those of the classifiers do (ops/classifier.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace gpt::ops {

// The mean of losses (N) float32. One after another on a CPU, so that neither the number of threads nor the process matters.
at::Tensor mean_loss(const at::Tensor& losses);

// Computes the loss and, times the gradient that the backward pass will give it, all other gradients: those of x go into `x_gradient`
// (N, C), undefined where x wants none; those of parameters are added to theirs.
using LossWork = std::function<at::Tensor(const at::Tensor& x_gradient)>;

// x (..., C) and `parameter`, which autograd must know of; the loss is what `work` returns. `upstream`: a float32 scalar, the gradient that
// the work counts with. On a CPU the backward pass throws where it is given another one; on a GPU nothing checks this.
at::Tensor precomputed_loss(const at::Tensor& x, const at::Tensor& parameter, const at::Tensor& upstream,
                            const LossWork& work);

}  // namespace gpt::ops
