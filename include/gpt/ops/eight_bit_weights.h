// The products of linear layers in 8 bits, in training: those of the forward pass, or those of the backward pass too. What the backward pass
// else computes with are the values themselves, in the usual type: the input of the product and the weight.
//
// The recipe is that of torchao's int8 mixed-precision training (pytorch/ao, torchao/prototype/quantized_training): a scale for each row of
// either factor, rounding to nearest, and neither embedding nor head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>

#include "gpt/ops/operators.h"
#include "gpt/parameters/parameters.h"
#include "gpt/products/eight_bit_factor.h"

namespace gpt::ops {

// The weights of blocks in 8 bits. Each is rounded where it is first needed, once for all micro-batches of an update.
class EightBitWeights {
 public:
  // Weights of the blocks from `first` to before `end`.
  EightBitWeights(EightBitType type, bool all_products, int64_t first, int64_t end)
      : type_(type), all_products_(all_products), first_(first), end_(end) {}

  bool has(const Site& site) const { return site.layer >= first_ && site.layer < end_; }
  bool all_products() const { return all_products_; }
  void forget() { by_rows_.clear(), by_columns_.clear(); }  // the values have changed

  EightBitFactor round(const at::Tensor& rows) const;  // the input (M, K) of a product
  // rows (M, K) times weight^T (K, N), plus the bias (N), if that is defined, in the weight's type.
  at::Tensor product(const EightBitFactor& rows, const parameters::Parameter& weight, const at::Tensor& bias);

  // With all_products(). Adds gradient (M, N) times weight to that of x (M, K), which is made where it is undefined.
  void add_input_gradient(at::Tensor& x_gradient, const at::Tensor& gradient, const parameters::Parameter& weight);
  // Adds gradient^T rows to the gradient of `weight`.
  void add_weight_gradient(const parameters::Parameter& weight, const at::Tensor& gradient,
                           const at::Tensor& rows) const;

 private:
  using Factors = std::map<const void*, EightBitFactor>;  // by where the values are
  const EightBitFactor& find(Factors& factors, const parameters::Parameter& weight, bool by_columns);

  const EightBitType type_;
  const bool all_products_;
  const int64_t first_, end_;
  Factors by_rows_, by_columns_;
};

}  // namespace gpt::ops
