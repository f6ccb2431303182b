#include <ATen/Parallel.h>

#include <algorithm>

#include "activation_kernel.h"
#include "gpt/simd/cpu_capability.h"
#include "ops/dropout.h"
#include "ops/kernels.h"
#include "ops/row_arguments.h"

namespace gpt::ops::cpu {

GPT_CPU_KERNEL(ActivationKernels<float>, activation_float32)
GPT_CPU_KERNEL(ActivationKernels<c10::BFloat16>, activation_bfloat16)

namespace {

// Calls work(kernels, arguments, begin, end) on all threads, for blocks of elements.
template <class T, class Work>
void for_all_blocks(const ActivationKernels<T>& kernels, Activation activation, const Dropout& dropout,
                    const at::Tensor& x, const at::Tensor& in, const Work& work) {
  constexpr int64_t kGrain = 256;  // blocks: below, waking a thread costs more than it saves
  const int64_t elements = x.numel(), columns = dropout ? columns_of(x) : elements;
  if (elements == 0) return;
  const ActivationArguments<T> arguments{activation, mask_on_cpu(dropout), columns, x.const_data_ptr<T>(), read<T>(in)};
  at::parallel_for(0, elements / columns * activation_blocks(columns), kGrain,
                   [&](int64_t begin, int64_t end) { work(kernels, arguments, begin, end); });
}

// The same with the kernels for the type of `x`.
template <class Work>
void run(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in, const Work& work) {
  if (x.scalar_type() == at::kFloat) {
    for_all_blocks(best_activation_float32(), activation, dropout, x, in, work);
  } else {
    for_all_blocks(best_activation_bfloat16(), activation, dropout, x, in, work);
  }
}

}  // namespace

void activation(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                const at::Tensor& y) {
  run(activation, dropout, x, in,
      [&]<class T>(const ActivationKernels<T>& kernels, const ActivationArguments<T>& arguments, int64_t begin,
                   int64_t end) { kernels.forward(arguments, begin, end, y.data_ptr<T>()); });
}

// Sums no rows: on a CPU a bias's own pass takes some thousandths of a step (OPT-30), because it finds the gradient in a cache.
at::Tensor activation_backward(Activation activation, const Dropout& dropout, const at::Tensor& x, const at::Tensor& in,
                               const at::Tensor& y_gradient, const at::Tensor& x_gradient,
                               const at::Tensor& in_gradient, bool /*sums_rows*/) {
  run(activation, dropout, x, in,
      [&]<class T>(const ActivationKernels<T>& kernels, const ActivationArguments<T>& arguments, int64_t begin,
                   int64_t end) {
        T* of_in = write<T>(in_gradient);
        kernels.backward(arguments, begin, end, y_gradient.const_data_ptr<T>(), x_gradient.data_ptr<T>(), of_in);
      });
  return {};
}

}  // namespace gpt::ops::cpu
