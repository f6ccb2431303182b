#include "gpt/model/gradient_mark.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

namespace gpt::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Reached : torch::CustomClassHolder {
  explicit Reached(std::function<void()> call) : call(std::move(call)) {}
  const std::function<void()> call;
};

struct Mark : torch::autograd::Function<Mark> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::function<void()>& reached) {
    context->saved_data["reached"] = c10::IValue::make_capsule(c10::make_intrusive<Reached>(reached));
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["reached"].toCapsule();
    static_cast<const Reached&>(*capsule).call();
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor mark_gradient(const at::Tensor& x, const std::function<void()>& reached) { return Mark::apply(x, reached); }

}  // namespace gpt::model
