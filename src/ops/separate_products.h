// linear_pair() and linear_activated() made of linear(), for operators that have no other product.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "gpt/ops/operators.h"
#include "gpt/ops/part.h"

namespace gpt::ops {

// `Base` is Operators or WrappedOperators.
template <class Base>
class SeparateProducts : public Base {
 public:
  using Base::Base;

  std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first,
                                                const LinearLayer& second, ProductInput input) const override {
    return {this->linear(x, first, input), this->linear(x, second, input)};
  }

  at::Tensor linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer,
                              ProductInput input) const override {
    at::Tensor y;
    {
      const InPart part(part::kProducts);
      y = this->linear(x, layer, input);
    }
    const InPart part(part::kActivation);
    return this->activate(activation, y);
  }
};

}  // namespace gpt::ops
