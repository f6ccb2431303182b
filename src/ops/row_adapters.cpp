#include "gpt/ops/row_adapters.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "gpt/ops/part.h"
#include "gpt/products/row_product.h"

namespace gpt::ops {

RowAdapters::RowAdapters(SharedOperators inner, const std::vector<std::vector<AdapterFactors>>& adapters,
                         at::ScalarType type)
    : WrappedOperators(std::move(inner)) {
  for (const auto& factors : adapters) adapters_.push_back(by_product(factors, type));
}

RowAdapters::OfModel RowAdapters::by_product(const std::vector<AdapterFactors>& factors, at::ScalarType type) {
  OfModel of_model;
  for (const auto& [site, outputs, a, b] : factors) {
    OfProduct& of_product = of_model[{site.role, site.layer}];
    const int64_t rank = a.size(0), before = of_product.a.defined() ? of_product.a.size(0) : 0;
    const at::Tensor own = a.to(type).contiguous();
    of_product.a = before > 0 ? at::cat({of_product.a, own}) : own;
    of_product.pieces.push_back({outputs, {before, rank}, b.t().to(type).contiguous()});
  }
  return of_model;
}

RowAdapters::Scope::Scope(const RowAdapters* adapters, std::vector<Rows> rows) : adapters_(adapters) {
  const auto has_none = [](const Rows& some) { return some.adapter == kNone; };
  if (adapters_ && !std::ranges::all_of(rows, has_none)) adapters_->rows_ = std::move(rows);
}

RowAdapters::Scope::~Scope() {
  if (adapters_) adapters_->rows_.clear();
}

const RowAdapters::OfProduct* RowAdapters::find(int64_t adapter, const Site& site) const {
  if (adapter == kNone) return nullptr;
  const OfModel& of_model = adapters_[static_cast<size_t>(adapter)];
  const auto found = of_model.find({site.role, site.layer});
  return found == of_model.end() ? nullptr : &found->second;
}

bool RowAdapters::adds_to(const LinearLayer& layer) const {
  return std::ranges::any_of(rows_, [&](const Rows& rows) { return find(rows.adapter, layer.site) != nullptr; });
}

// Factors have another type than the product only where a GPU computes a pass in float32.
void RowAdapters::add(const OfProduct& adapter, const at::Tensor& rows, const at::Tensor& product) {
  const at::ScalarType type = product.scalar_type();
  const at::Tensor a = adapter.a.to(type), in = rows.to(type),
                   narrow = has_few_rows(in, a) ? row_product(in, a) : at::linear(in, a);
  for (const auto& [outputs, ranks, b] : adapter.pieces)
    product.narrow(1, outputs.begin, outputs.length).addmm_(narrow.narrow(1, ranks.begin, ranks.length), b.to(type));
}

void RowAdapters::add_to(const at::Tensor& product, const at::Tensor& x, const LinearLayer& layer) const {
  const at::Tensor in = x.reshape({-1, x.size(-1)}), out = product.view({-1, product.size(-1)});
  int64_t first = 0;
  for (const auto& [count, adapter] : rows_) {
    if (const OfProduct* const found = find(adapter, layer.site))
      add(*found, in.narrow(0, first, count), out.narrow(0, first, count));
    first += count;
  }
  TORCH_CHECK(first == in.size(0), "RowAdapters: ", in.size(0), " rows, and adapters are named for ", first);
}

at::Tensor RowAdapters::linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const {
  const at::Tensor product = inner_->linear(x, layer, input);
  if (adds_to(layer)) add_to(product, x, layer);
  return product;
}

std::pair<at::Tensor, at::Tensor> RowAdapters::linear_pair(const at::Tensor& x, const LinearLayer& first,
                                                           const LinearLayer& second, ProductInput input) const {
  const auto products = inner_->linear_pair(x, first, second, input);
  if (adds_to(first)) add_to(products.first, x, first);
  if (adds_to(second)) add_to(products.second, x, second);
  return products;
}

// What an adapter adds comes before the activation.
at::Tensor RowAdapters::linear_activated(Activation activation, const at::Tensor& x, const LinearLayer& layer,
                                         ProductInput input) const {
  if (!adds_to(layer)) return inner_->linear_activated(activation, x, layer, input);
  at::Tensor product;
  {
    const InPart part(part::kProducts);
    product = linear(x, layer, input);
  }
  const InPart part(part::kActivation);
  return activate(activation, product);
}

}  // namespace gpt::ops
