#include "support/emulated_kernels.h"

#include <ATen/ops/full.h>

#include "support/cuda_emulation.h"  // before the kernels, which it compiles for the host

#include "src/ops/cuda/activation.cuh"
#include "src/ops/cuda/adamw.cuh"
#include "src/ops/cuda/classifier.cuh"
#include "src/ops/cuda/embedding.cuh"
#include "src/ops/cuda/flat_norm.cuh"
#include "src/ops/cuda/heads.cuh"
#include "src/ops/cuda/norm.cuh"
#include "src/ops/cuda/verdict.cuh"

namespace gpt::test {
namespace {

using emulation::Launch;
using ops::Dropout;

// A mask with its key where a GPU has it; every other argument as it is.
template <class Argument>
const Argument& on_device(const Argument& argument) {
  return argument;
}

Dropout on_device(const Dropout& dropout) {
  if (!dropout) return dropout;
  return {dropout.mask, at::full({}, static_cast<int64_t>(dropout.mask.key), at::kLong)};
}

}  // namespace

ops::Kernels emulated_kernels() {
  namespace cuda = ops::cuda;
  return {.token_gather = ops::cpu::token_gather,  // token_gather_test.cpp emulates its kernel
          .join_heads = [](auto... of) { return cuda::join_heads(Launch(), on_device(of)...); },
          .embedding = [](auto... of) { return cuda::embedding(Launch(), on_device(of)...); },
          .embedding_backward = [](auto... of) { return cuda::embedding_backward(Launch(), on_device(of)...); },
          .activation = [](auto... of) { return cuda::activation(Launch(), on_device(of)...); },
          .activation_backward = [](auto... of) { return cuda::activation_backward(Launch(), on_device(of)...); },
          .cross_entropy = [](auto... of) { return cuda::cross_entropy(Launch(), on_device(of)...); },
          .add_norm = [](auto... of) { return cuda::add_norm(Launch(), on_device(of)...); },
          .add_norm_backward = [](auto... of) { return cuda::add_norm_backward(Launch(), on_device(of)...); },
          .add_row_sums = [](auto... of) { return cuda::add_row_sums(Launch(), on_device(of)...); },
          .flat_norm = [](auto... of) { return cuda::flat_norm(Launch(), on_device(of)...); },
          .judge = [](auto... of) { return cuda::judge(Launch(), on_device(of)...); },
          .adamw = [](auto... of) { return cuda::adamw(Launch(), on_device(of)...); },
          .take_float16 = true};
}

}  // namespace gpt::test
