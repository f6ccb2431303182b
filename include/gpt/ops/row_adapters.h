// Adapters (LoRA) that rows of a model's products have, each its own or none: texts with different adapters are computed together. The product
// with the model's weight, in whatever form that is kept, is one of all rows; what an adapter adds is a product of its rows alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gpt/ops/operators.h"

namespace gpt::ops {

// Adds (x A^T) B^T to some outputs of a product. One product may have several, of other ranks.
struct AdapterFactors {
  Site site;  // of the product, in a block
  layout::RowCut::Piece outputs;
  at::Tensor a, b;  // (rank, inputs), (outputs, rank), with the scale within b
};

class RowAdapters : public WrappedOperators {
 public:
  static constexpr int64_t kNone = -1;

  // `adapters`: the factors of each, which is known by its place here. They are kept in `type`, in which the model computes.
  RowAdapters(SharedOperators inner, const std::vector<std::vector<AdapterFactors>>& adapters, at::ScalarType type);

  struct Rows {
    int64_t count, adapter;
    bool operator==(const Rows&) const = default;
  };

  // Within its scope, the rows that go through the blocks have these adapters, in their order; outside of one none has any. `adapters` may be
  // null: there are none.
  class Scope {
   public:
    Scope(const RowAdapters* adapters, std::vector<Rows> rows);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const RowAdapters* adapters_;
  };

  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const override;
  std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first,
                                                const LinearLayer& second, ProductInput input) const override;
  at::Tensor linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer,
                              ProductInput input) const override;

 private:
  struct Piece {
    layout::RowCut::Piece outputs, ranks;  // of the product, and of A
    at::Tensor b;                          // (rank, outputs), as a product of few rows is fastest with it
  };
  struct OfProduct {
    at::Tensor a;  // of all pieces, one behind the other
    std::vector<Piece> pieces;
  };
  using Place = std::pair<layout::ParameterRole, int64_t>;
  using OfModel = std::map<Place, OfProduct>;

  static OfModel by_product(const std::vector<AdapterFactors>& factors, at::ScalarType type);
  static void add(const OfProduct& adapter, const at::Tensor& rows, const at::Tensor& product);
  const OfProduct* find(int64_t adapter, const Site& site) const;
  bool adds_to(const LinearLayer& layer) const;
  void add_to(const at::Tensor& product, const at::Tensor& x, const LinearLayer& layer) const;

  std::vector<OfModel> adapters_;
  mutable std::vector<Rows> rows_;  // of the scope
};

}  // namespace gpt::ops
