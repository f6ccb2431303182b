#include "gpt/ops/eight_bit_operators.h"

#include <memory>
#include <utility>

#include "gpt/ops/eight_bit_weights.h"
#include "gpt/ops/linear.h"
#include "separate_products.h"

namespace gpt::ops {
namespace {

class EightBitOperators : public SeparateProducts<WrappedOperators> {
 public:
  EightBitOperators(SharedOperators inner, std::shared_ptr<EightBitWeights> weights)
      : SeparateProducts(std::move(inner)), weights_(std::move(weights)) {}

  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const override {
    return weights_->has(layer.site) ? ops::linear(x, layer, input, weights_) : inner_->linear(x, layer, input);
  }
  std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first,
                                                const LinearLayer& second, ProductInput input) const override {
    return weights_->has(first.site) ? ops::linear_pair(x, first, second, input, weights_)
                                     : inner_->linear_pair(x, first, second, input);
  }
  at::Tensor linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer,
                              ProductInput input) const override {
    return weights_->has(layer.site) ? SeparateProducts::linear_activated(activation, x, layer, input)
                                     : inner_->linear_activated(activation, x, layer, input);
  }
  at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer) const override {
    return weights_->has(layer.site) ? ops::linear_for_backward(x, layer, weights_)
                                     : inner_->linear_for_backward(x, layer);
  }

  void values_changed() const override { weights_->forget(); }

 private:
  const std::shared_ptr<EightBitWeights> weights_;
};

}  // namespace

SharedOperators eight_bit_operators(SharedOperators inner, EightBitType type, bool all_products, int64_t first,
                                    int64_t end) {
  return std::make_shared<EightBitOperators>(std::move(inner),
                                             std::make_shared<EightBitWeights>(type, all_products, first, end));
}

}  // namespace gpt::ops
