#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "gpt/ops/norm.h"
#include "norm_kernels.h"
#include "ops/dropout.h"
#include "ops/kernels.h"
#include "ops/row_arguments.h"
#include "row_grain.h"

namespace gpt::ops::cpu {

namespace {

// What the rows add to the gradients of the parameters is summed up in so many parts at most, which the shape alone
// determines: the sums are then the same for every number of threads.
constexpr int64_t kMostParts = 64, kLeastRows = 16;

// Calls work(kernels) with those for the types.
template <class Work>
void with_kernels(const at::Tensor& x, const at::Tensor& branch, const Work& work) {
  if (x.scalar_type() == at::kBFloat16) {
    work(best_norm_bfloat16());
  } else if (branch.defined() && branch.scalar_type() == at::kBFloat16) {
    work(best_norm_mixed());
  } else {
    work(best_norm_float32());
  }
}

}  // namespace

void add_norm(const Normalization& norm, const Dropout& dropout, const at::Tensor& x, const at::Tensor& branch,
              const at::Tensor& sum, const at::Tensor& normed, const at::Tensor& statistics) {
  const int64_t C = norm.weight.value().numel();
  with_kernels(x, branch, [&]<class T, class B>(const NormKernels<T, B>& kernels) {
    const auto rows = add_norm_rows<T, B>(norm, mask_on_cpu(dropout), x, branch, sum, normed, statistics);
    at::parallel_for(0, x.numel() / C, row_grain(C),
                     [&](int64_t begin, int64_t end) { kernels.forward(rows, begin, end); });
  });
}

at::Tensor add_norm_backward(const Normalization& norm, const Dropout& dropout, const at::Tensor& sum,
                             const at::Tensor& statistics, const at::Tensor& sum_gradient,
                             const at::Tensor& normed_gradient, const at::Tensor& x_gradient,
                             const at::Tensor& branch_gradient, bool /*sums_branch*/) {
  const int64_t C = norm.weight.value().numel(), rows = sum.numel() / C;
  const int64_t parts = std::clamp<int64_t>(rows / kLeastRows, 1, kMostParts), most = (rows + parts - 1) / parts;
  const int64_t stride = 2 * C;
  const at::Tensor sums = at::empty({parts, 2, C}, at::kFloat);
  auto* const of_all = sums.mutable_data_ptr<float>();
  with_kernels(sum, branch_gradient, [&]<class T, class B>(const NormKernels<T, B>& kernels) {
    const auto gradients = add_norm_gradients<T, B>(norm, mask_on_cpu(dropout), sum, statistics, sum_gradient,
                                                    normed_gradient, x_gradient, branch_gradient);
    at::parallel_for(0, parts, row_grain(most * C), [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        float* const own = of_all + part * stride;
        std::fill_n(own, stride, 0.0f);
        kernels.backward(gradients, std::min(part * most, rows), std::min((part + 1) * most, rows), own,
                         norm.bias.defined() ? own + C : nullptr);
      }
    });
  });
  return sums;
}

}  // namespace gpt::ops::cpu
