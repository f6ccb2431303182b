#include "adapter.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "dropout.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

// What a piece of the outputs has of all: of the product, of the narrowed rows, and of B.
struct Piece {
  layout::RowCut::Piece outputs, ranks, of_b;
};

std::vector<Piece> pieces_of(const Adapter& adapter) {
  const int64_t rank = adapter.b.value().size(1);
  std::vector<Piece> pieces;
  int64_t of_b = 0, ranks = 0;
  for (const layout::RowCut::Piece& outputs : adapter.outputs) {
    pieces.push_back({outputs, {ranks, rank}, {of_b, outputs.length}});
    of_b += outputs.length;
    ranks += rank;
  }
  return pieces;
}

at::Tensor columns(const at::Tensor& of, const layout::RowCut::Piece& piece) {
  return of.narrow(1, piece.begin, piece.length);
}

at::Tensor rows_of(const at::Tensor& of, const layout::RowCut::Piece& piece) {
  return of.narrow(0, piece.begin, piece.length);
}

at::Tensor value_of(const parameters::Parameter& factor, const at::Tensor& like) {
  return factor.compute_value().detach().to(like.scalar_type());
}

// Rows (M, K) through the adapter's dropout, which is the same map forward and back. A lookup drops out what lies in the rows of a table, each
// of which is named once here.
at::Tensor dropped(const Adapter& adapter, const at::Tensor& rows, int64_t of_sample) {
  const Dropout dropout = dropout_of(adapter.dropout, rows, of_sample);
  if (!dropout) return rows;
  const at::Tensor table = rows.contiguous(), result = at::empty_like(table);
  const at::Tensor own = at::arange(rows.size(0), rows.options().dtype(at::kLong)).view({-1, of_sample});
  kernels_of(table)->embedding(dropout, own, table, {}, result.view({-1, of_sample, rows.size(1)}));
  return result;
}

}  // namespace

at::Tensor narrowed(const Adapter& adapter, const at::Tensor& rows, int64_t of_sample, cpu::MatrixLibrary library) {
  return product_with_bias(dropped(adapter, rows, of_sample), value_of(adapter.a, rows), {}, library)
      .mul_(adapter.scale);
}

void add_adapter(const Adapter& adapter, const at::Tensor& product, const at::Tensor& narrow) {
  const at::Tensor b = value_of(adapter.b, narrow);
  for (const auto& [outputs, ranks, of_b] : pieces_of(adapter))
    columns(product, outputs).addmm_(columns(narrow, ranks), rows_of(b, of_b).t());
}

at::Tensor plus_adapter(const Adapter& adapter, const at::Tensor& product, const at::Tensor& x) {
  at::Tensor in = x;
  if (adapter.dropout.probability > 0) {
    const at::Tensor ones = at::ones_like(x.detach(), at::MemoryFormat::Contiguous).flatten(0, -2);
    in = x * dropped(adapter, ones, rows_of_sample(x)).view(x.sizes());
  }
  const at::Tensor narrow = at::linear(in, adapter.a.tracked()) * adapter.scale, b = adapter.b.tracked();
  at::Tensor sum = product;
  for (const auto& [outputs, ranks, of_b] : pieces_of(adapter)) {
    const at::Tensor added = at::linear(narrow.narrow(-1, ranks.begin, ranks.length), rows_of(b, of_b));
    const auto zeros = [&](int64_t length) {
      std::vector<int64_t> shape = product.sizes().vec();
      shape.back() = length;
      return at::zeros(shape, added.options());
    };
    const int64_t end = outputs.begin + outputs.length;
    sum = sum + at::cat({zeros(outputs.begin), added, zeros(product.size(-1) - end)}, -1);
  }
  return sum;
}

void add_adapter_gradients(const Adapter& adapter, const at::Tensor& gradient, const at::Tensor& rows,
                           int64_t of_sample, const at::Tensor& narrow, const at::Tensor& x_gradient,
                           cpu::MatrixLibrary library) {
  const at::Tensor b = value_of(adapter.b, gradient), of_b = at::empty(b.sizes(), gradient.options()),
                   of_narrow = at::empty(narrow.sizes(), gradient.options());
  for (const auto& [outputs, ranks, own] : pieces_of(adapter)) {
    const at::Tensor of_outputs = columns(gradient, outputs);
    at::Tensor own_of_b = rows_of(of_b, own), own_of_narrow = columns(of_narrow, ranks);
    at::mm_out(own_of_b, of_outputs.t(), columns(narrow, ranks));
    at::addmm_out(own_of_narrow, own_of_narrow, of_outputs, rows_of(b, own), /*beta=*/0, /*alpha=*/1);
  }
  of_narrow.mul_(adapter.scale);
  adapter.b.add_to_gradient(of_b);
  accumulate_product(adapter.a, of_narrow, dropped(adapter, rows, of_sample), library);
  if (!x_gradient.defined()) return;
  const at::Tensor a = value_of(adapter.a, gradient);
  if (adapter.dropout.probability > 0) {
    x_gradient.add_(dropped(adapter, product(of_narrow, a, library), of_sample));
  } else {
    add_product(x_gradient, of_narrow, a, library);
  }
}

}  // namespace gpt::ops
