#include "gpt/ops/norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>

#include "dropout.h"
#include "float32_parameter.h"
#include "kept.h"
#include "kernels.h"
#include "repeat.h"
#include "row_sums.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The statistics are undefined where they need not be kept.
Normalized compute(const Normalization& norm, const Dropout& dropout, const at::Tensor& x, const at::Tensor& branch,
                   const at::Tensor& statistics) {
  Normalized result{branch.defined() ? at::empty_like(x) : x, at::empty_like(x)};
  kernels_of(x)->add_norm(norm, dropout, x, branch, result.sum, result.normed, statistics);
  return result;
}

struct AppliedNorm {
  Normalization norm;
  Dropout dropout;
  std::shared_ptr<RowSums> of_branch;  // what a layer wants of the branch's gradient
};

// The same with parameters that the kernels read.
Normalization in_float32(const Normalization& norm) {
  return {norm.kind, norm.eps, ops::in_float32(norm.weight, norm.offset), ops::in_float32(norm.bias)};
}

struct AddNorm : torch::autograd::Function<AddNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*of autograd*/,
                               const std::optional<at::Tensor>& branch, const Normalization& norm,
                               const Dropout& dropout) {
    const at::Tensor statistics =
        at::empty({x.numel() / norm.weight.value().numel(), 2}, x.options().dtype(at::kFloat));
    const at::Tensor added = branch.value_or(at::Tensor());
    const Normalized result = compute(in_float32(norm), dropout, x, added, statistics);
    context->set_materialize_grads(false);
    context->save_for_backward({result.sum, statistics});
    keep(*context, AppliedNorm{norm, dropout, wanted_row_sums(added)});
    if (branch) context->saved_data["branch"] = static_cast<int64_t>(branch->scalar_type());
    return {result.sum, result.normed};
  }

  // Where nothing tells them apart, x and the branch get the same tensor.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &statistics = saved[1];
    const auto& [norm, dropout, of_branch] = kept<AppliedNorm>(*context);
    const at::Tensor x_gradient = at::empty_like(sum);
    at::Tensor branch_gradient;
    const auto branch = context->saved_data.find("branch");
    if (branch != context->saved_data.end()) {
      const auto type = static_cast<at::ScalarType>(branch->second.toInt());
      if (dropout || type != sum.scalar_type()) branch_gradient = at::empty_like(sum, type);
    }
    const auto contiguous = [](const at::Tensor& x) { return x.defined() ? x.contiguous() : x; };
    const DeviceKernels kernels = kernels_of(sum);
    const at::Tensor sums =
        kernels->add_norm_backward(in_float32(norm), dropout, sum, statistics, contiguous(gradients[0]),
                                   contiguous(gradients[1]), x_gradient, branch_gradient, of_branch != nullptr);
    if (gradients[1].defined()) add_sums(norm, kernels, sums);
    if (!branch_gradient.defined() && branch != context->saved_data.end()) branch_gradient = x_gradient;
    if (sums.size(1) > 2) give_row_sums(of_branch, branch_gradient, sums.select(1, 2));
    return {x_gradient, at::Tensor(), branch_gradient, at::Tensor(), at::Tensor()};
  }

 private:
  // `sums` (n, 2 or 3, C): of the weight, of the bias, and what else there is.
  static void add_sums(const Normalization& norm, const DeviceKernels& kernels, const at::Tensor& sums) {
    const bool has_weight = norm.weight.is_trained(), has_bias = norm.bias.is_trained();
    if (has_weight && has_bias) return kernels->add_row_sums({norm.weight, norm.bias}, sums);
    if (has_weight) kernels->add_row_sums({norm.weight}, sums);
    if (has_bias) kernels->add_row_sums({norm.bias}, sums.narrow(1, 1, 1));
  }
};

void check(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch) {
  const at::IntArrayRef shape = norm.weight.value().sizes();
  TORCH_CHECK(shape.size() == 1 && shape[0] > 0 && x.dim() > 0 && x.size(-1) == shape[0] &&
                  x.device() == norm.weight.value().device(),
              "norm: x ", x.sizes(), " on ", x.device(), " does not fit a weight of ", shape, " on ",
              norm.weight.value().device());
  TORCH_CHECK(!norm.bias.defined() || (norm.kind == Norm::layernorm && norm.bias.value().sizes() == shape),
              "norm: a bias is a LayerNorm's and as long as its weight");
  check_kernel_type("norm", x);
  if (!branch.defined()) return;
  check_kernel_type("norm", branch);
  TORCH_CHECK(branch.sizes() == x.sizes() && branch.device() == x.device() &&
                  (branch.scalar_type() == x.scalar_type() || x.scalar_type() == at::kFloat),
              "norm: a branch of ", branch.sizes(), " and type ", branch.scalar_type(), " does not fit ", x.sizes(),
              " of type ", x.scalar_type());
}

}  // namespace

Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                    const DropoutSpec& dropout) {
  check(norm, x, branch);
  if (!x.is_cpu() && x.size(-1) > kMostNormColumnsOfCuda) return aten_add_norm(norm, x, branch, dropout);
  const Dropout mask = branch.defined() ? dropout_of(dropout, x, rows_of_sample(x)) : Dropout();
  const at::Tensor rows = x.contiguous(), added = branch.defined() ? branch.contiguous() : branch;
  if (!at::GradMode::is_enabled()) return compute(in_float32(norm), mask, rows, added, /*statistics=*/{});
  const auto results =
      AddNorm::apply(rows, norm.weight.value(), added.defined() ? std::optional(added) : std::nullopt, norm, mask);
  return {results[0], results[1]};
}

Normalized aten_add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                         const DropoutSpec& dropout) {
  const at::Tensor sum = branch.defined() ? x + at::dropout(branch, dropout.probability, /*train=*/true) : x;
  const at::IntArrayRef shape = norm.weight.value().sizes();
  const at::Tensor weight = norm.offset == 0 ? norm.weight.tracked() : norm.weight.tracked() + norm.offset;
  return {sum, norm.kind == Norm::layernorm ? at::layer_norm(sum, shape, weight, norm.bias.tracked(), norm.eps)
                                            : at::rms_norm(sum, shape, weight, norm.eps)};
}

Repeat repeat_norm(const at::Tensor& normed) {
  using Node = torch::autograd::CppNode<AddNorm>;
  const auto node = std::dynamic_pointer_cast<Node>(normed.grad_fn());
  if (!node || normed.output_nr() != 1) return {};
  return [node] {
    const at::Tensor sum = node->ctx_.get_saved_variables()[0];
    return compute(in_float32(kept<AppliedNorm>(node->ctx_).norm), Dropout(), sum, /*branch=*/{}, /*statistics=*/{})
        .normed;
  };
}

}  // namespace gpt::ops
