#include "gpt/ops/precomputed_loss.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct PrecomputedLoss : torch::autograd::Function<PrecomputedLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*of autograd*/,
                            const at::Tensor& upstream, const LossWork& work) {
    const at::Tensor x_gradient = x.requires_grad() ? at::empty(x.sizes(), x.options()) : at::Tensor();
    const at::Tensor loss = work(x_gradient.defined() ? x_gradient.view({-1, x.size(-1)}) : at::Tensor());
    context->save_for_backward({x_gradient});
    if (x.is_cpu()) context->saved_data["upstream"] = static_cast<double>(upstream.item<float>());
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (gradients[0].is_cpu()) {
      const double expected = context->saved_data["upstream"].toDouble(), given = gradients[0].item<float>();
      TORCH_CHECK(given == expected, "classifier: the gradient of the loss is ", given,
                  ", but the forward pass was told ", expected);
    }
    variable_list result(4);
    result[0] = context->get_saved_variables()[0];
    return result;
  }
};

}  // namespace

at::Tensor mean_loss(const at::Tensor& losses) {
  if (!losses.is_cpu()) return losses.mean();
  const auto* loss = losses.const_data_ptr<float>();
  const double sum = std::accumulate(loss, loss + losses.numel(), 0.0);
  return at::full({}, sum / static_cast<double>(losses.numel()), losses.options());
}

at::Tensor precomputed_loss(const at::Tensor& x, const at::Tensor& parameter, const at::Tensor& upstream,
                            const LossWork& work) {
  return PrecomputedLoss::apply(x, parameter, upstream, work);
}

}  // namespace gpt::ops
