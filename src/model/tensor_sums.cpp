#include "tensor_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/layout/alignment.h"

namespace gpt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Within its scope tensors are ordinary ones, which another thread may change, also where the caller only infers.
struct OrdinaryTensors {
  const c10::InferenceMode off{false};
  const at::NoGradGuard no_gradients;
};

// Nobody else reads y, which comes from a product.
at::Tensor summed(const TensorGroup& group, const at::Tensor& y, const Parameter& bias) {
  const OrdinaryTensors ordinary;
  at::Tensor sum = y.is_inference() ? y.clone(at::MemoryFormat::Contiguous) : y.detach().contiguous();
  group->sum(sum);
  if (bias.defined()) sum.add_(bias.compute_value().detach());
  return sum;
}

struct SumAndBias : torch::autograd::Function<SumAndBias> {
  // `group` null: for the backward pass alone.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y,
                            const std::optional<at::Tensor>& /*of autograd*/, const TensorGroup& group,
                            const Parameter& bias) {
    if (bias.is_trained()) context->saved_data["bias"] = bias.to_capsule();
    return group ? summed(group, y, bias) : y.detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor& gradient = gradients[0];
    if (const auto bias = context->saved_data.find("bias"); bias != context->saved_data.end())
      Parameter::from_capsule(bias->second).add_to_gradient(gradient.reshape({-1, gradient.size(-1)}).sum(0));
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor sum_and_bias(const TensorGroup& group, const at::Tensor& y, const Parameter& bias) {
  return SumAndBias::apply(y, bias.is_trained() ? std::optional(bias.value()) : std::nullopt, group, bias);
}

}  // namespace

at::Tensor sum_over(const TensorGroup& group, const at::Tensor& y, const Parameter& bias) {
  return at::GradMode::is_enabled() ? sum_and_bias(group, y, bias) : summed(group, y, bias);
}

at::Tensor with_bias_for_backward(const at::Tensor& y, const Parameter& bias) { return sum_and_bias(nullptr, y, bias); }

void sum_gradient_over(const TensorGroup& group, const at::Tensor& x) {
  if (!x.requires_grad()) return;
  x.register_hook([group](const at::Tensor& gradient) {
    if (!gradient.defined()) return gradient;
    // Others may hold the gradient: what autograd hands out is not changed in place.
    at::Tensor sum = gradient.detach().clone(at::MemoryFormat::Contiguous);
    group->sum(sum);
    return sum;
  });
}

at::Tensor gather_from(const TensorGroup& group, const at::Tensor& x) {
  const OrdinaryTensors ordinary;
  const int64_t n = group->size(), count = x.numel();
  const int64_t most = distributed::kStretchBytes / (n * static_cast<int64_t>(x.element_size())) / kParameterAlignment *
                       kParameterAlignment;
  const at::Tensor own = x.detach().flatten();
  std::vector<at::Tensor> stretches;
  for (int64_t begin = 0; begin < count; begin += most) {
    const int64_t length = std::min(most, count - begin);
    const at::Tensor all = at::zeros({n, aligned_end(length)}, x.options());  // equal parts of the communicator's
    all[group->rank()].narrow(0, 0, length).copy_(own.narrow(0, begin, length));
    group->begin_gather(all.view({-1}), distributed::kEach);
    group->finish();
    stretches.push_back(all.narrow(1, 0, length));
  }
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), n);
  return at::cat(stretches, 1).view(shape);
}

}  // namespace gpt
