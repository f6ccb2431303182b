#include "tensor_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "gpt/layout/alignment.h"

namespace gpt::model {
namespace {

// Within its scope tensors are ordinary ones, which another thread may change, also where the caller only infers.
struct OrdinaryTensors {
  const c10::InferenceMode off{false};
  const at::NoGradGuard no_gradients;
};

// The most values that each of n processes may have of a stretch, in whole units of the parts of a communicator. Shorter ones are padded to
// such units.
int64_t longest_part(int64_t n, size_t value_size) {
  return distributed::kStretchBytes / (n * static_cast<int64_t>(value_size)) / layout::kParameterAlignment *
         layout::kParameterAlignment;
}

// The sum of this process's row in all processes' x (processes, values).
at::Tensor sum_of_row(const TensorGroup& group, const at::Tensor& x) {
  const at::Tensor sum = at::empty({x.size(1)}, x.options());
  const int64_t most = longest_part(x.size(0), x.element_size());
  std::vector<at::Tensor> stretches;  // which nobody else may use until all have been sent
  for (int64_t begin = 0; begin < x.size(1); begin += most) {
    const int64_t length = std::min(most, x.size(1) - begin), padding = layout::aligned_end(length) - length;
    const at::Tensor part = x.narrow(1, begin, length);
    stretches.push_back(padding == 0 ? part.contiguous() : at::constant_pad_nd(part, {0, padding}));
    group->begin_sum_of_part(stretches.back().view({-1}), x.scalar_type(), {sum.narrow(0, begin, length)},
                             distributed::kEach);
  }
  group->finish();
  return sum;
}

}  // namespace

at::Tensor sum_over(const TensorGroup& group, const at::Tensor& y, const parameters::Parameter& bias) {
  const OrdinaryTensors ordinary;
  // Nobody else reads y, which comes from a product.
  at::Tensor sum = y.is_inference() ? y.clone(at::MemoryFormat::Contiguous) : y.detach().contiguous();
  group->sum(sum);
  if (bias.defined()) sum.add_(bias.compute_value().detach());
  return sum;
}

at::Tensor gather_from(const TensorGroup& group, const at::Tensor& x) {
  const OrdinaryTensors ordinary;
  const int64_t n = group->size(), count = x.numel(), most = longest_part(n, x.element_size());
  const at::Tensor own = x.detach().flatten();
  std::vector<at::Tensor> stretches;
  for (int64_t begin = 0; begin < count; begin += most) {
    const int64_t length = std::min(most, count - begin);
    const at::Tensor all = at::empty({n, layout::aligned_end(length)}, x.options()), part = all[group->rank()];
    part.narrow(0, 0, length).copy_(own.narrow(0, begin, length));
    part.slice(0, length).zero_();
    group->begin_gather(all.view({-1}), distributed::kEach);
    stretches.push_back(all.narrow(1, 0, length));
  }
  group->finish();
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), n);
  return (stretches.size() == 1 ? stretches[0] : at::cat(stretches, 1)).reshape(shape);
}

at::Tensor OwnRows::sum(const at::Tensor& y) const {
  const int64_t C = y.size(-1), all = group->size() * count();
  at::Tensor rows = y.detach().reshape({B * T, C});
  if (all > B * T) rows = at::constant_pad_nd(rows, {0, 0, 0, all - B * T});
  return sum_of_row(group, rows.reshape({group->size(), count() * C})).view({count(), 1, C});
}

at::Tensor OwnRows::gather(const at::Tensor& x) const {
  return gather_from(group, x).flatten(0, 2).narrow(0, 0, B * T).view({B, T, x.size(-1)});
}

parameters::Parameter WholeGradients::part_of(const parameters::Parameter& whole) {
  if (!whole.is_trained()) return whole;
  const at::Tensor &value = whole.value(), &computed = whole.compute_value();
  const auto gradients =
      c10::make_intrusive<parameters::FlatGradients>(value.numel(),
                                                     at::TensorOptions(value.device()).dtype(at::kFloat));
  const parameters::Parameter part(value, computed.is_same(value) ? at::Tensor() : computed, gradients, /*offset=*/0);
  pairs_.push_back({whole, part});
  return part;
}

void WholeGradients::add_up() const {
  std::vector<at::Tensor> gradients;
  for (const auto& [whole, part] : pairs_)
    if (part.has_gradient()) gradients.push_back(part.gradient());
  if (gradients.empty()) return;  // nothing was computed from what they give
  const at::Tensor sums = at::stack(gradients);
  group_->sum(sums);
  for (size_t i = 0; i < pairs_.size(); ++i) pairs_[i].whole.add_to_gradient(sums[static_cast<int64_t>(i)]);
}

}  // namespace gpt::model
