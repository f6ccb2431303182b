#include "gpt/ops/mapped.h"

#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "kept.h"
#include "repeat.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AppliedMap {
  LinearMap map;
  Repeat input;  // computes again what was mapped; empty where that cannot be
};

struct Mapped : torch::autograd::Function<Mapped> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& /*of autograd*/, const LinearMap& map) {
    keep(*context, AppliedMap{map, repeat_of(x)});
    return map.forward(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {kept<AppliedMap>(*context).map.backward(gradients[0]), at::Tensor(), at::Tensor()};
  }
};

Repeat repeat_mapped(const at::Tensor& y) {
  const auto node = std::dynamic_pointer_cast<torch::autograd::CppNode<Mapped>>(y.grad_fn());
  if (!node || !kept<AppliedMap>(node->ctx_).input) return {};
  return [node] {
    const auto& [map, input] = kept<AppliedMap>(node->ctx_);
    return map.forward(input());
  };
}

}  // namespace

at::Tensor mapped(const at::Tensor& x, const LinearMap& map, const std::optional<at::Tensor>& trained) {
  return Mapped::apply(x, trained, map);
}

Repeat repeat_of(const at::Tensor& x) {
  for (const auto& repeat_from : {repeat_norm, repeat_activation, repeat_mapped})
    if (Repeat repeat = repeat_from(x)) return repeat;
  return {};
}

}  // namespace gpt::ops
