#include "gpt/ops/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

namespace at::native {

// result = beta * result + alpha * a b, all strided 2-d. LibTorch exports it, but the wheel has no header that declares it.
TORCH_API void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);

}  // namespace at::native

namespace gpt::ops {
namespace {

using cpu::MatrixLibrary;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Below this, packing the weight for oneDNN costs more than the wider registers save.
constexpr int64_t kMinRows = 16;

bool mkl_leaves_avx512_unused() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

// a (M, K) times b (K, N).
at::Tensor product(const at::Tensor& a, const at::Tensor& b, MatrixLibrary library) {
  if (library == MatrixLibrary::aten) return at::mm(a, b);
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  at::native::mkldnn_matmul(a, b, result, /*beta=*/0, /*alpha=*/1);
  return result;
}

// Adds gradient^T rows to the gradient of `weight`.
void accumulate_product(const Parameter& weight, const at::Tensor& gradient, const at::Tensor& rows,
                        MatrixLibrary library) {
  if (rows.scalar_type() !=
      weight.gradient().scalar_type()) {  // the result of a 16-bit product is converted as it is added
    weight.add_to_gradient(at::mm(gradient.t(), rows));
    return;
  }
  at::Tensor result = weight.gradient();
  const bool adds = weight.begin_contribution();
  if (library == MatrixLibrary::onednn) {
    at::native::mkldnn_matmul(gradient.t(), rows, result, /*beta=*/adds ? 1 : 0, /*alpha=*/1);
  } else if (adds) {
    result.addmm_(gradient.t(), rows);
  } else {
    at::mm_out(result, gradient.t(), rows);
  }
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*of autograd*/,
                            const std::optional<at::Tensor>& bias, const Parameter& parameter, MatrixLibrary library) {
    at::Tensor rows = x.reshape({-1, x.size(-1)}), weight = parameter.value(),
               b = bias.value_or(at::Tensor());  // (M, K), (N, K)
    if (const auto type = x.device().type(); at::autocast::is_autocast_enabled(type)) {
      const at::ScalarType narrow = at::autocast::get_autocast_dtype(type);
      rows = at::autocast::cached_cast(narrow, rows, type);
      weight = at::autocast::cached_cast(narrow, weight, type);
      if (b.defined()) b = at::autocast::cached_cast(narrow, b, type);
    }
    context->save_for_backward({rows, weight});
    context->saved_data["parameter"] = parameter.to_capsule();
    context->saved_data["library"] = static_cast<int64_t>(library);
    context->saved_data["bias"] = b.defined() && bias->requires_grad();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    if (library == MatrixLibrary::aten) return at::linear(rows, weight, b).view(shape);  // (M, N)
    at::Tensor y = product(rows, weight.t(), library);
    if (b.defined()) y.add_(b);
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &weight = saved[1];
    const auto library = static_cast<MatrixLibrary>(context->saved_data["library"].toInt());
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});  // (M, N)
    variable_list result(5);
    if (context->needs_input_grad(0)) {
      std::vector<int64_t> shape = gradients[0].sizes().vec();
      shape.back() = weight.size(1);
      result[0] = product(gradient, weight, library).view(shape);
    }
    accumulate_product(Parameter::from_capsule(context->saved_data["parameter"]), gradient, rows, library);
    if (context->saved_data["bias"].toBool()) result[2] = gradient.sum(0);
    return result;
  }
};

}  // namespace

bool cpu::onednn_works() {
  try {
    const at::Tensor one = at::ones({1, 1}, at::kFloat);
    product(one, one, MatrixLibrary::onednn);
    return true;
  } catch (const c10::Error&) { return false; }
}

at::Tensor cpu::linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias, MatrixLibrary library) {
  TORCH_CHECK(x.is_cpu() && x.scalar_type() == at::kFloat, "linear: takes float32 on the CPU, got ", x.scalar_type(),
              " on ", x.device());
  return Linear::apply(x, weight.value(), bias.defined() ? std::optional(bias) : std::nullopt, weight, library);
}

at::Tensor linear(const at::Tensor& x, const Parameter& weight, const at::Tensor& bias) {
  TORCH_CHECK(weight.value().dim() == 2 && x.size(-1) == weight.value().size(1), "linear: x ", x.sizes(),
              " does not fit weight ", weight.value().sizes());
  static const bool prefer_onednn = mkl_leaves_avx512_unused() && cpu::onednn_works();
  const bool float32_on_cpu =
      x.is_cpu() && x.scalar_type() == at::kFloat && !at::autocast::is_autocast_enabled(at::kCPU);
  const bool use_onednn = float32_on_cpu && prefer_onednn && x.numel() >= kMinRows * x.size(-1);
  if (!use_onednn && !at::GradMode::is_enabled()) return at::linear(x, weight.value(), bias);
  return Linear::apply(x, weight.value(), bias.defined() ? std::optional(bias) : std::nullopt, weight,
                       use_onednn ? MatrixLibrary::onednn : MatrixLibrary::aten);
}

}  // namespace gpt::ops
