#include "gpt/ops/activation.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "activation_kernel.h"
#include "cpu_capability.h"

namespace gpt::ops {
namespace cpu {

GPT_CPU_KERNEL(ActivationKernels<float>, activation_float32)
GPT_CPU_KERNEL(ActivationKernels<c10::BFloat16>, activation_bfloat16)

}  // namespace cpu

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls work(kernels, T) for the type of `x`.
template <class Work>
void with_kernels(const at::Tensor& x, const Work& work) {
  if (x.scalar_type() == at::kFloat) {
    work(cpu::best_activation_float32(), float());
  } else {
    work(cpu::best_activation_bfloat16(), c10::BFloat16());
  }
}

// Calls work(begin, end) on all threads, for whole blocks.
template <class Work>
void for_each_stretch(int64_t elements, const Work& work) {
  constexpr int64_t kGrain = 256;  // blocks: below, waking a thread costs more than it saves
  const int64_t blocks = (elements + cpu::kActivationBlock - 1) / cpu::kActivationBlock;
  at::parallel_for(0, blocks, kGrain, [&](int64_t begin, int64_t end) {
    work(begin * cpu::kActivationBlock, std::min(end * cpu::kActivationBlock, elements));
  });
}

struct Activate : torch::autograd::Function<Activate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& in,
                            Activation activation, cpu::DropoutMask dropout) {
    const at::Tensor y = at::empty_like(x);
    with_kernels(x, [&]<class T>(const cpu::ActivationKernels<T>& kernels, T) {
      const auto arguments = arguments_of<T>(x, in.value_or(at::Tensor()), activation, dropout);
      for_each_stretch(x.numel(),
                       [&](int64_t begin, int64_t end) { kernels.forward(arguments, begin, end, y.data_ptr<T>()); });
    });
    context->save_for_backward({x, in.value_or(at::Tensor())});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    context->saved_data["key"] = static_cast<int64_t>(dropout.key);
    context->saved_data["kept"] = static_cast<int64_t>(dropout.kept_of_65536);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &in = saved[1], upstream = gradients[0].contiguous();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const cpu::DropoutMask dropout{static_cast<uint64_t>(context->saved_data["key"].toInt()),
                                   static_cast<uint32_t>(context->saved_data["kept"].toInt())};
    const at::Tensor x_gradient = at::empty_like(x), in_gradient = in.defined() ? at::empty_like(in) : at::Tensor();
    with_kernels(x, [&]<class T>(const cpu::ActivationKernels<T>& kernels, T) {
      const auto arguments = arguments_of<T>(x, in, activation, dropout);
      T* of_in = in.defined() ? in_gradient.data_ptr<T>() : nullptr;
      for_each_stretch(x.numel(), [&](int64_t begin, int64_t end) {
        kernels.backward(arguments, begin, end, upstream.const_data_ptr<T>(), x_gradient.data_ptr<T>(), of_in);
      });
    });
    return {x_gradient, in_gradient, at::Tensor(), at::Tensor()};
  }

 private:
  template <class T>
  static cpu::ActivationArguments<T> arguments_of(const at::Tensor& x, const at::Tensor& in, Activation activation,
                                                  cpu::DropoutMask dropout) {
    return {activation, dropout, x.const_data_ptr<T>(), in.defined() ? in.const_data_ptr<T>() : nullptr};
  }
};

void check(const at::Tensor& x) {
  TORCH_CHECK(!x.is_cpu() || x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16,
              "activation: takes float32 or bfloat16 on a CPU, got ", x.scalar_type());
}

at::Tensor by_aten(Activation activation, const at::Tensor& x) {
  return activation == Activation::silu ? at::silu(x) : at::gelu(x, "tanh");
}

}  // namespace

at::Tensor activate(Activation activation, const at::Tensor& x) {
  check(x);
  if (!x.is_cpu()) return by_aten(activation, x);
  return Activate::apply(x.contiguous(), std::nullopt, activation, cpu::DropoutMask{});
}

at::Tensor activate_gated(Activation activation, const at::Tensor& gate, const at::Tensor& in, double dropout) {
  check(gate);
  TORCH_CHECK(gate.sizes() == in.sizes() && gate.scalar_type() == in.scalar_type(), "activation: a gate of ",
              gate.sizes(), " and type ", gate.scalar_type(), " does not fit ", in.sizes(), " of type ",
              in.scalar_type());
  TORCH_CHECK(dropout >= 0 && dropout < 1, "activation: dropout must be in [0, 1), got ", dropout);
  if (!gate.is_cpu()) return at::dropout(by_aten(activation, gate) * in, dropout, /*train=*/true);
  return Activate::apply(gate.contiguous(), std::optional(in.contiguous()), activation,
                         cpu::draw_dropout_mask(dropout));
}

}  // namespace gpt::ops
