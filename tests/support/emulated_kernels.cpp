#include "support/emulated_kernels.h"

#include "support/cuda_emulation.h"  // before the kernels, which it compiles for the host

#include "src/ops/cuda/activation.cuh"
#include "src/ops/cuda/adamw.cuh"
#include "src/ops/cuda/classifier.cuh"
#include "src/ops/cuda/distillation.cuh"
#include "src/ops/cuda/embedding.cuh"
#include "src/ops/cuda/flat_norm.cuh"
#include "src/ops/cuda/heads.cuh"
#include "src/ops/cuda/muon.cuh"
#include "src/ops/cuda/norm.cuh"
#include "src/ops/cuda/verdict.cuh"

namespace gpt::test {
namespace {

using emulation::Launch;

}  // namespace

ops::Kernels emulated_kernels() {
  namespace cuda = ops::cuda;
  return {.token_gather = ops::cpu::token_gather,  // token_gather_test.cpp emulates its kernel
          .join_heads = [](auto... of) { return cuda::join_heads(Launch(), of...); },
          .embedding = [](auto... of) { return cuda::embedding(Launch(), of...); },
          .embedding_backward = [](auto... of) { return cuda::embedding_backward(Launch(), of...); },
          .activation = [](auto... of) { return cuda::activation(Launch(), of...); },
          .activation_backward = [](auto... of) { return cuda::activation_backward(Launch(), of...); },
          .cross_entropy = [](auto... of) { return cuda::cross_entropy(Launch(), of...); },
          .distillation = [](auto... of) { return cuda::distillation(Launch(), of...); },
          .add_norm = [](auto... of) { return cuda::add_norm(Launch(), of...); },
          .add_norm_backward = [](auto... of) { return cuda::add_norm_backward(Launch(), of...); },
          .sum_rows = [](auto... of) { return cuda::sum_rows(Launch(), of...); },
          .add_row_sums = [](auto... of) { return cuda::add_row_sums(Launch(), of...); },
          .flat_norm = [](auto... of) { return cuda::flat_norm(Launch(), of...); },
          .judge = [](auto... of) { return cuda::judge(Launch(), of...); },
          .adamw = [](auto... of) { return cuda::adamw(Launch(), of...); },
          .muon_direction = [](auto... of) { return cuda::muon_direction(Launch(), of...); },
          .muon_update = [](auto... of) { return cuda::muon_update(Launch(), of...); },
          .take_float16 = true};
}

}  // namespace gpt::test
