#include "gpt/ops/linear.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
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

// Below this, packing the weight costs more than the wider registers save.
constexpr int64_t kMinRows = 16;

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  at::native::mkldnn_matmul(a, b, result, /*beta=*/0, /*alpha=*/1);
  return result;
}

bool mkl_leaves_avx512_unused() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

struct OneDnnLinear : torch::autograd::Function<OneDnnLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    const at::Tensor rows = x.reshape({-1, x.size(-1)});  // (M, K)
    context->save_for_backward({rows, weight});
    at::Tensor y = product(rows, weight.t());  // (M, N)
    if (bias) y.add_(*bias);
    context->saved_data["bias"] = bias.has_value() && bias->requires_grad();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return y.view(shape);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &weight = saved[1];
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});  // (M, N)
    torch::autograd::variable_list result(3);
    if (context->needs_input_grad(0)) {
      std::vector<int64_t> shape = gradients[0].sizes().vec();
      shape.back() = weight.size(1);
      result[0] = product(gradient, weight).view(shape);
    }
    if (context->needs_input_grad(1)) result[1] = product(gradient.t(), rows);
    if (context->saved_data["bias"].toBool()) result[2] = gradient.sum(0);
    return result;
  }
};

}  // namespace

bool cpu::onednn_works() {
  try {
    const at::Tensor one = at::ones({1, 1}, at::kFloat);
    product(one, one);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

at::Tensor cpu::linear_onednn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  TORCH_CHECK(x.is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat,
              "linear_onednn: takes float32 on the CPU, got ", x.scalar_type(), " on ", x.device());
  TORCH_CHECK(weight.dim() == 2 && x.size(-1) == weight.size(1), "linear_onednn: x ", x.sizes(),
              " does not fit weight ", weight.sizes());
  return OneDnnLinear::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  static const bool prefer_onednn = mkl_leaves_avx512_unused() && cpu::onednn_works();
  const bool float32_on_cpu = x.is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat &&
                              !at::autocast::is_autocast_enabled(at::kCPU);
  if (float32_on_cpu && prefer_onednn && x.numel() >= kMinRows * x.size(-1)) {
    return cpu::linear_onednn(x, weight, bias);
  }
  return at::linear(x, weight, bias);
}

}  // namespace gpt::ops
