#include "gpt/ops/narrow_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>

#include <map>
#include <memory>
#include <vector>

#include "gpt/device/host.h"
#include "gpt/ops/document_starts.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/products/row_product.h"
#include "separate_products.h"

namespace gpt::ops {
namespace {

// The product of many rows, such as a prompt's: in 16 bits where the processor multiplies those fast, and otherwise in float32, for which
// converting the weight costs little beside the product.
at::Tensor many_row_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (weight.scalar_type() == at::kBFloat16 && host::cpu_has_bfloat16())
    return at::linear(x.to(at::kBFloat16), weight, bias).to(at::kFloat);
  return at::linear(x, weight.to(at::kFloat), bias.defined() ? bias.to(at::kFloat) : bias);
}

class NarrowWeightOperators : public SeparateProducts<WrappedOperators> {
 public:
  explicit NarrowWeightOperators(const parameters::Parameters& parameters) : SeparateProducts(fused_operators()) {
    for (size_t i = 0; i < parameters.rows().size(); ++i) {
      if (parameters.rows()[i].shape.size() == 1)
        wide_.emplace(key(parameters[i]), parameters[i].value().to(at::kFloat));
    }
  }

  at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                       const parameters::Parameter& positions, const at::Tensor& starts,
                       const DropoutSpec& /*dropout*/) const override {
    std::vector<int64_t> shape = ids.sizes().vec();
    shape.push_back(table.value().size(1));
    at::Tensor x = at::index_select(table.value(), 0, ids.flatten()).view(shape).to(at::kFloat);  // (B, T, C)
    if (positions.defined()) x.add_(position_rows(positions.value(), starts, ids.size(1)));
    return x;
  }

  Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                      const DropoutSpec& dropout) const override {
    Normalization wide = norm;
    wide.weight = wide_.at(key(norm.weight));
    if (norm.bias.defined()) wide.bias = wide_.at(key(norm.bias));
    return inner_->add_norm(wide, x, branch, dropout);
  }

  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput /*input*/) const override {
    const at::Tensor rows = x.reshape({-1, x.size(-1)}), &weight = layer.weight.value();
    const at::Tensor bias = layer.bias.defined() ? layer.bias.value() : at::Tensor();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return (has_few_rows(rows, weight) ? row_product(rows, weight, bias) : many_row_product(rows, weight, bias))
        .view(shape);
  }

 private:
  static const void* key(const parameters::Parameter& parameter) { return parameter.value().const_data_ptr(); }

  std::map<const void*, parameters::Parameter> wide_;  // what normalizations read, which is little, in float32
};

}  // namespace

SharedOperators narrow_weight_operators(const parameters::Parameters& parameters) {
  return std::make_shared<NarrowWeightOperators>(parameters);
}

}  // namespace gpt::ops
