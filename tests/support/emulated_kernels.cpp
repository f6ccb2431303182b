#include "support/emulated_kernels.h"

#include <ATen/ops/full.h>

#include "support/cuda_emulation.h"  // before the kernels, which it compiles for the host

#include "src/ops/activation_kernel.cuh"
#include "src/ops/adamw_kernel.cuh"
#include "src/ops/classifier_kernel.cuh"
#include "src/ops/embedding_kernel.cuh"
#include "src/ops/flat_norm_kernel.cuh"
#include "src/ops/heads_kernel.cuh"
#include "src/ops/norm_kernel.cuh"

namespace gpt::test {
namespace {

using emulation::Launch;
using ops::Activation;
using ops::ClassifierOptions;
using ops::Dropout;
using ops::Normalization;

// With its key where a GPU has it.
Dropout on_device(const Dropout& dropout) {
  if (!dropout) return dropout;
  return {dropout.mask, at::full({}, static_cast<int64_t>(dropout.mask.key), at::kLong)};
}

at::Tensor join_heads(const ops::RotaryTables& rotary, int direction, const at::Tensor& q, const at::Tensor& k,
                      const at::Tensor& v, const at::Tensor& packed, bool sums_rows) {
  return ops::cuda::join_heads(Launch(), rotary, direction, q, k, v, packed, sums_rows);
}

void embedding(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
               const at::Tensor& y) {
  ops::cuda::embedding(Launch(), on_device(dropout), ids, table, positions, y);
}

void embedding_backward(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& gradient,
                        const at::Tensor& of_table, const at::Tensor& of_positions) {
  ops::cuda::embedding_backward(Launch(), on_device(dropout), ids, gradient, of_table, of_positions);
}

void activation(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                const at::Tensor& y) {
  ops::cuda::activation(Launch(), activation, on_device(dropout), x, in, y);
}

at::Tensor activation_backward(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                               const at::Tensor& y_gradient, const at::Tensor& x_gradient,
                               const at::Tensor& in_gradient, bool sums_rows) {
  return ops::cuda::activation_backward(Launch(), activation, on_device(dropout), x, in, y_gradient, x_gradient,
                                        in_gradient, sums_rows);
}

void cross_entropy(const ClassifierOptions& options, const at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& losses, const at::Tensor& scale) {
  ops::cuda::cross_entropy(Launch(), options, logits, targets, losses, scale);
}

void add_norm(const Normalization& norm, const Dropout& dropout, const at::Tensor& x, const at::Tensor& branch,
              const at::Tensor& sum, const at::Tensor& normed, const at::Tensor& statistics) {
  ops::cuda::add_norm(Launch(), norm, on_device(dropout), x, branch, sum, normed, statistics);
}

at::Tensor add_norm_backward(const Normalization& norm, const Dropout& dropout, const at::Tensor& sum,
                             const at::Tensor& statistics, const at::Tensor& sum_gradient,
                             const at::Tensor& normed_gradient, const at::Tensor& x_gradient,
                             const at::Tensor& branch_gradient, bool sums_branch) {
  return ops::cuda::add_norm_backward(Launch(), norm, on_device(dropout), sum, statistics, sum_gradient,
                                      normed_gradient, x_gradient, branch_gradient, sums_branch);
}

void add_row_sums(const Parameter& parameter, const at::Tensor& parts) {
  ops::cuda::add_row_sums(Launch(), parameter, parts);
}

at::Tensor flat_norm(const at::Tensor& values) { return ops::cuda::flat_norm(Launch(), values); }

void adamw(const ops::AdamWBuffers& buffers, const ops::AdamWRates& rates, const ops::AdamWScalars& scalars) {
  ops::cuda::adamw(Launch(), buffers, rates, scalars);
}

}  // namespace

ops::Kernels emulated_kernels() {
  ops::Kernels kernels = ops::kernels_of(at::empty({0}));
  kernels.join_heads = join_heads;
  kernels.embedding = embedding;
  kernels.embedding_backward = embedding_backward;
  kernels.activation = activation;
  kernels.activation_backward = activation_backward;
  kernels.cross_entropy = cross_entropy;
  kernels.add_norm = add_norm;
  kernels.add_norm_backward = add_norm_backward;
  kernels.add_row_sums = add_row_sums;
  kernels.flat_norm = flat_norm;
  kernels.adamw = adamw;
  kernels.take_float16 = true;
  return kernels;
}

}  // namespace gpt::test
