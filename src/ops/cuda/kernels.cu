// The CUDA kernels behind kernels.h: each function makes the tensors' device the current one and launches on its stream. They are one
// source, because nvcc spends most of its time on LibTorch's headers.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "activation.cuh"
#include "adamw.cuh"
#include "classifier.cuh"
#include "distillation.cuh"
#include "embedding.cuh"
#include "flat_norm.cuh"
#include "heads.cuh"
#include "muon.cuh"
#include "norm.cuh"
#include "ops/kernels.h"
#include "row_sums.cuh"
#include "token_gather.cuh"
#include "verdict.cuh"

namespace gpt::ops::cuda {

void token_gather(const at::Tensor& inputs, const at::Tensor& targets, const at::Tensor& tokens,
                  const at::Tensor& starts) {
  const c10::cuda::CUDAGuard guard(tokens.device());
  const int64_t B = inputs.size(0), T = inputs.size(1), N = tokens.size(0);
  const auto threads = static_cast<unsigned>(std::min<int64_t>(256, (T + 31) / 32 * 32));
  const auto launch = [&](const auto* ids) {
    token_gather_kernel<<<static_cast<unsigned>(B), threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        inputs.data_ptr<int64_t>(), targets.data_ptr<int64_t>(), ids, starts.const_data_ptr<int64_t>(), N, T);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  if (tokens.scalar_type() == at::kUInt16) {
    launch(tokens.const_data_ptr<uint16_t>());
  } else {
    launch(tokens.const_data_ptr<int32_t>());
  }
}

at::Tensor join_heads(const RotaryTables& rotary, int direction, const at::Tensor& q, const at::Tensor& k,
                      const at::Tensor& v, const at::Tensor& packed, bool sums_rows) {
  const c10::cuda::CUDAGuard guard(packed.device());
  return cuda::join_heads(StreamLaunch(), rotary, direction, q, k, v, packed, sums_rows);
}

void embedding(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
               const at::Tensor& y) {
  const c10::cuda::CUDAGuard guard(table.device());
  cuda::embedding(StreamLaunch(), dropout, ids, table, positions, y);
}

void embedding_backward(const Dropout& dropout, const at::Tensor& ids, const at::Tensor& gradient,
                        const at::Tensor& of_table, const at::Tensor& of_positions) {
  const c10::cuda::CUDAGuard guard(gradient.device());
  cuda::embedding_backward(StreamLaunch(), dropout, ids, gradient, of_table, of_positions);
}

void activation(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                const at::Tensor& y) {
  const c10::cuda::CUDAGuard guard(x.device());
  cuda::activation(StreamLaunch(), activation, dropout, x, in, y);
}

at::Tensor activation_backward(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                               const at::Tensor& y_gradient, const at::Tensor& x_gradient,
                               const at::Tensor& in_gradient, bool sums_rows) {
  const c10::cuda::CUDAGuard guard(x.device());
  return cuda::activation_backward(StreamLaunch(), activation, dropout, x, in, y_gradient, x_gradient, in_gradient,
                                   sums_rows);
}

void cross_entropy(const ClassifierOptions& options, const at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& losses, const at::Tensor& scale) {
  const c10::cuda::CUDAGuard guard(logits.device());
  cuda::cross_entropy(StreamLaunch(), options, logits, targets, losses, scale);
}

void distillation(const ClassifierOptions& options, const at::Tensor& logits, const at::Tensor& teacher,
                  const at::Tensor& targets, const at::Tensor& losses, const at::Tensor& scale) {
  const c10::cuda::CUDAGuard guard(logits.device());
  cuda::distillation(StreamLaunch(), options, logits, teacher, targets, losses, scale);
}

void add_norm(const Normalization& norm, const Dropout& dropout, const at::Tensor& x, const at::Tensor& branch,
              const at::Tensor& sum, const at::Tensor& normed, const at::Tensor& statistics) {
  const c10::cuda::CUDAGuard guard(x.device());
  cuda::add_norm(StreamLaunch(), norm, dropout, x, branch, sum, normed, statistics);
}

at::Tensor add_norm_backward(const Normalization& norm, const Dropout& dropout, const at::Tensor& sum,
                             const at::Tensor& statistics, const at::Tensor& sum_gradient,
                             const at::Tensor& normed_gradient, const at::Tensor& x_gradient,
                             const at::Tensor& branch_gradient, bool sums_branch) {
  const c10::cuda::CUDAGuard guard(sum.device());
  return cuda::add_norm_backward(StreamLaunch(), norm, dropout, sum, statistics, sum_gradient, normed_gradient,
                                 x_gradient, branch_gradient, sums_branch);
}

at::Tensor sum_rows(const at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  return cuda::sum_rows(StreamLaunch(), x);
}

void add_row_sums(c10::ArrayRef<Parameter> parameters, const at::Tensor& parts) {
  const c10::cuda::CUDAGuard guard(parts.device());
  cuda::add_row_sums(StreamLaunch(), parameters, parts);
}

at::Tensor flat_norm(const at::Tensor& values) {
  const c10::cuda::CUDAGuard guard(values.device());
  return cuda::flat_norm(StreamLaunch(), values);
}

void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts,
           const SpikeWatch& watch) {
  const c10::cuda::CUDAGuard guard(evidence.loss.device());
  cuda::judge(StreamLaunch(), evidence, max_norm, verdict, counts, watch);
}

void adamw(const AdamWBuffers& buffers, const AdamWRates& rates, const AdamWScalars& scalars) {
  const c10::cuda::CUDAGuard guard(buffers.gradients.device());
  cuda::adamw(StreamLaunch(), buffers, rates, scalars);
}

void muon_direction(const MuonBuffers& buffers, double momentum, const MuonScalars& scalars) {
  const c10::cuda::CUDAGuard guard(buffers.gradients.device());
  cuda::muon_direction(StreamLaunch(), buffers, momentum, scalars);
}

void muon_update(const MuonWeights& weights, const MuonRates& rates, const MuonScalars& scalars) {
  const c10::cuda::CUDAGuard guard(weights.direction.device());
  cuda::muon_update(StreamLaunch(), weights, rates, scalars);
}

}  // namespace gpt::ops::cuda
