#include "gpt/ops/quantized_weights.h"

#include <map>
#include <memory>

#include "gpt/ops/document_starts.h"
#include "gpt/ops/operator_sets.h"
#include "separate_products.h"

namespace gpt::ops {
namespace {

class QuantizedWeightOperators : public SeparateProducts<WrappedOperators> {
 public:
  explicit QuantizedWeightOperators(const std::vector<PackedWeight>& weights) : SeparateProducts(fused_operators()) {
    for (const PackedWeight& weight : weights) weights_.emplace(weight.panels.const_data_ptr(), weight);
  }

  at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                       const parameters::Parameter& positions, const at::Tensor& starts,
                       const DropoutSpec& /*dropout*/) const override {
    const PackedWeight& weight = weight_of(table);
    std::vector<int64_t> shape = ids.sizes().vec();
    shape.push_back(weight.columns);
    at::Tensor x = rows_of(weight, ids.flatten()).view(shape);  // (B, T, C)
    if (positions.defined()) x.add_(position_rows(positions.value(), starts, ids.size(1)));
    return x;
  }

  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput /*input*/) const override {
    const PackedWeight& weight = weight_of(layer.weight);
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.rows;
    const at::Tensor bias = layer.bias.defined() ? layer.bias.value() : at::Tensor();
    return quantized_product(x.reshape({-1, weight.columns}), weight, bias).view(shape);
  }

 private:
  const PackedWeight& weight_of(const parameters::Parameter& parameter) const {
    return weights_.at(parameter.value().const_data_ptr());
  }

  std::map<const void*, PackedWeight> weights_;
};

}  // namespace

SharedOperators quantized_weight_operators(const std::vector<PackedWeight>& weights) {
  return std::make_shared<QuantizedWeightOperators>(weights);
}

}  // namespace gpt::ops
