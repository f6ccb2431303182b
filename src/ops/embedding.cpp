#include "gpt/ops/embedding.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "dropout.h"
#include "gpt/ops/document_starts.h"
#include "kept.h"
#include "kernels.h"

namespace gpt::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Lookup {
  parameters::Parameter table, positions;
  Dropout dropout;
  at::Tensor places;  // (B T) int64: the positions, where documents have their own; else undefined
};

// The rows of the positions of a sequence; undefined without positions.
at::Tensor first_rows(const at::Tensor& positions, int64_t T) {
  return positions.defined() ? positions.narrow(0, 0, T) : positions;
}

// (B, T): each names the row of a table of B T rows, so that a lookup drops out what lies there.
at::Tensor own_rows(const at::Tensor& ids) { return at::arange(ids.numel(), ids.options()).view(ids.sizes()); }

at::Tensor compute_in_documents(const Lookup& lookup, const at::Tensor& ids, const at::Tensor& table,
                                const at::Tensor& positions) {
  const at::Tensor sum = at::empty({ids.size(0), ids.size(1), table.size(1)}, table.options());
  kernels_of(table)->embedding({}, ids, table, {}, sum);
  sum.flatten(0, 1).add_(positions.index_select(0, lookup.places));
  if (!lookup.dropout) return sum;
  const at::Tensor y = at::empty_like(sum);
  kernels_of(table)->embedding(lookup.dropout, own_rows(ids), sum.flatten(0, 1), {}, y);
  return y;
}

at::Tensor compute(const Lookup& lookup, at::Tensor ids) {
  const parameters::Parameter& whole = lookup.table;
  const bool is_narrow = whole.is_narrow();  // then the rows that are needed are the table
  const at::Tensor table = is_narrow ? whole.frozen().rows_of(ids.flatten(), whole.compute_value().scalar_type())
                                     : whole.compute_value().detach();
  if (is_narrow) ids = own_rows(ids);
  const at::Tensor positions = lookup.positions.defined() ? lookup.positions.compute_value().detach() : at::Tensor();
  if (lookup.places.defined()) return compute_in_documents(lookup, ids, table, positions);
  const at::Tensor y = at::empty({ids.size(0), ids.size(1), table.size(1)}, table.options());
  kernels_of(table)->embedding(lookup.dropout, ids, table, first_rows(positions, ids.size(1)), y);
  return y;
}

// What a contribution is added to: zeros, where it is the first. Undefined where nothing is trained.
at::Tensor begun_gradient(const parameters::Parameter& parameter) {
  if (!parameter.is_trained()) return {};
  const at::Tensor& gradient = parameter.gradient();
  if (!parameter.begin_contribution()) gradient.zero_();
  return gradient;
}

// gradient (B, T, C), contiguous.
void add_gradients_in_documents(const Lookup& lookup, const at::Tensor& ids, at::Tensor gradient) {
  const DeviceKernels kernels = kernels_of(gradient);
  if (lookup.dropout) {
    const at::Tensor kept = at::zeros({ids.numel(), gradient.size(2)}, gradient.options().dtype(at::kFloat));
    kernels->embedding_backward(lookup.dropout, own_rows(ids), gradient, kept, {});
    gradient = kept.view(gradient.sizes()).to(gradient.scalar_type());
  }
  const at::Tensor of_table = begun_gradient(lookup.table), of_positions = begun_gradient(lookup.positions);
  if (of_table.defined()) kernels->embedding_backward({}, ids, gradient, of_table, {});
  if (of_positions.defined()) add_position_rows(of_positions, lookup.places, gradient.flatten(0, 1));
}

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor& /*of autograd*/,
                            const Lookup& lookup) {
    context->save_for_backward({ids});
    keep(*context, lookup);
    return compute(lookup, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor ids = context->get_saved_variables()[0];
    const auto& lookup = kept<Lookup>(*context);
    if (lookup.places.defined()) {
      add_gradients_in_documents(lookup, ids, gradients[0].contiguous());
      return variable_list(3);
    }
    const at::Tensor of_table = begun_gradient(lookup.table),
                     of_positions = first_rows(begun_gradient(lookup.positions), ids.size(1));
    kernels_of(ids)->embedding_backward(lookup.dropout, ids, gradients[0].contiguous(), of_table, of_positions);
    return variable_list(3);
  }
};

void check(const at::Tensor& ids, const parameters::Parameter& table, const parameters::Parameter& positions) {
  const at::Tensor& rows = table.compute_value();
  TORCH_CHECK(ids.dim() == 2 && ids.scalar_type() == at::kLong && ids.device() == rows.device(),
              "embedding: ids must be (B, T) int64 on ", rows.device(), ", got ", ids.sizes(), " ", ids.scalar_type(),
              " on ", ids.device());
  TORCH_CHECK(rows.dim() == 2, "embedding: the table must be (V, C), got ", rows.sizes());
  check_kernel_type("embedding", rows);
  if (!positions.defined()) return;
  const at::Tensor& of_positions = positions.compute_value();
  TORCH_CHECK(of_positions.dim() == 2 && of_positions.size(1) == rows.size(1) &&
                  of_positions.scalar_type() == rows.scalar_type() && of_positions.device() == rows.device() &&
                  ids.size(1) <= of_positions.size(0),
              "embedding: positions ", of_positions.sizes(), " do not fit a table of ", rows.sizes(),
              " and sequences of ", ids.size(1), " tokens");
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table, const parameters::Parameter& positions,
                     const DropoutSpec& dropout, const at::Tensor& starts) {
  check(ids, table, positions);
  Lookup lookup{table, positions, dropout_of(dropout, table.compute_value(), ids.size(1)), {}};
  if (starts.defined() && positions.defined()) {
    TORCH_CHECK(starts.sizes() == ids.sizes() && starts.scalar_type() == at::kInt,
                "embedding: starts must be int32 as ids ", ids.sizes(), ", got ", starts.sizes());
    lookup.places = positions_in_documents(starts).flatten();
  }
  if (!at::GradMode::is_enabled()) return compute(lookup, ids.contiguous());
  const parameters::Parameter& trained = table.is_trained() || !positions.defined() ? table : positions;
  return Embedding::apply(ids.contiguous(), trained.value(), lookup);
}

}  // namespace gpt::ops
