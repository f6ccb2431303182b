#include "gpt/model/tensor_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/config/block_form.h"
#include "gpt/layout/stages.h"
#include "gpt/model/gradient_mark.h"
#include "gpt/ops/document_starts.h"
#include "gpt/ops/mapped.h"
#include "tensor_sums.h"
#include "vocabulary_classifier.h"

namespace gpt::model {
namespace {

using ops::DropoutSpec;
using ops::LinearLayer;
using ops::Normalization;
using ops::Normalized;
using ops::ProductInput;

// Dropout of x (..., C) alone, by the operator that has it behind a lookup, for which rows are a table.
at::Tensor dropped_out(const ops::SharedOperators& operators, const at::Tensor& x, const DropoutSpec& dropout) {
  const auto look_up = [operators, dropout](const parameters::Parameter& rows, at::IntArrayRef sizes) {
    const at::Tensor ids = at::arange(rows.value().size(0), rows.value().options().dtype(at::kLong));
    return operators->embedding(ids.view({sizes[0], sizes[1]}), rows, /*positions=*/{}, /*starts=*/{}, dropout);
  };
  return ops::mapped(x, {.forward =
                             [look_up](const at::Tensor& x) {
                               return look_up(parameters::Parameter(x.detach().flatten(0, 1)), x.sizes());
                             },
                         // Only shapes count in what is computed again.
                         .backward =
                             [look_up](const at::Tensor& gradient) {
                               const parameters::Parameter rows(at::empty_like(gradient.flatten(0, 1)));
                               const at::AutoGradMode with_gradients(true);
                               torch::autograd::backward({look_up(rows, gradient.sizes())}, {gradient});
                               return rows.gradient().view(gradient.sizes());
                             }});
}

class TensorParallel : public ops::WrappedOperators {
 public:
  // `rows`: this process's, in a pass that autograd records; without them it has all rows, and no gradients are asked for.
  TensorParallel(ops::SharedOperators inner, TensorGroup group, const ModelConfig& model,
                 std::optional<OwnRows> rows = std::nullopt)
      : WrappedOperators(std::move(inner)),
        group_(std::move(group)),
        model_(model),
        vocabulary_{group_, model.padded_vocab()},
        rows_(std::move(rows)) {}

  ops::SharedOperators dividing_rows(int64_t B, int64_t T) const {
    return std::make_shared<TensorParallel>(inner_, group_, model_, OwnRows{group_, B, T});
  }

  at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                       const parameters::Parameter& positions, const at::Tensor& starts,
                       const DropoutSpec& dropout) const override {
    const auto [begin, end] = vocabulary_.rows();
    const at::Tensor is_elsewhere = (ids < begin).logical_or_(ids >= end);
    const at::Tensor own_ids = (ids - begin).masked_fill_(is_elsewhere, 0);
    const at::Tensor own = inner_->embedding(own_ids, table, {}, {}, {}).masked_fill(is_elsewhere.unsqueeze(-1), 0);
    at::Tensor x;
    if (rows_) {
      x = rows_at_positions(own, positions, starts);
    } else {
      x = sum_over(group_, own, /*bias=*/{});
      if (positions.defined()) x.add_(ops::position_rows(positions.compute_value().detach(), starts, ids.size(1)));
    }
    return dropout.probability == 0 ? x : dropped_out(inner_, x, of_own_rows(dropout, x));
  }

  Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                      const DropoutSpec& dropout) const override {
    const DropoutSpec own = of_own_rows(dropout, x);
    if (!rows_ || !at::GradMode::is_enabled()) return inner_->add_norm(norm, x, branch, own);
    const auto gradients = std::make_shared<WholeGradients>(group_);
    const Normalization part{norm.kind, norm.eps,   gradients->part_of(norm.weight), gradients->part_of(norm.bias),
                             norm.site, norm.offset};
    TORCH_CHECK(x.requires_grad(), "tensor_parallel: what is normalized must have a gradient");
    return inner_->add_norm(part, mark_gradient(x, [gradients] { gradients->add_up(); }), branch, own);
  }

  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const override {
    if (layer.site.role == layout::ParameterRole::head) return all_logits(x, layer);
    if (!is_summed(layer)) return inner_->linear(all_rows(x), layer, input);
    const at::Tensor y = inner_->linear(x, without_bias(layer), input);
    return rows_ ? own_rows(y, layer.bias) : sum_over(group_, y, layer.bias);
  }

  std::pair<at::Tensor, at::Tensor> linear_pair(const at::Tensor& x, const LinearLayer& first,
                                                const LinearLayer& second, ProductInput input) const override {
    return inner_->linear_pair(all_rows(x), first, second, input);
  }

  at::Tensor linear_activated(ops::Activation activation, const at::Tensor& x, const LinearLayer& layer,
                              ProductInput input) const override {
    return inner_->linear_activated(activation, all_rows(x), layer, input);
  }

  // Called for products whose results are added up.
  at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer) const override {
    const at::Tensor y = inner_->linear_for_backward(x, without_bias(layer));
    const auto zeros = [sizes = std::vector<int64_t>{rows_->count(), 1, y.size(-1)}](const at::Tensor& y) {
      return at::zeros({}, y.options()).expand(sizes);
    };
    return ops::mapped(y, {.forward = zeros, .backward = gather_with_bias(layer.bias)},
                       parameters::trained_value(layer.bias));
  }

  at::Tensor attention(at::Tensor qkv, const ops::AttentionSpec& spec, const ops::RotaryTables& rotary) const override {
    ops::AttentionSpec part = spec;
    part.dropout.first = group_->rank() * spec.heads;
    part.dropout.all_heads = model_.heads();
    if (!part.norms.defined() || !at::GradMode::is_enabled()) return inner_->attention(std::move(qkv), part, rotary);
    const auto gradients = std::make_shared<WholeGradients>(group_);  // each process's are those of its heads
    part.norms = {gradients->part_of(spec.norms.query), gradients->part_of(spec.norms.key), spec.norms.eps,
                  spec.norms.offset};
    return inner_->attention(mark_gradient(qkv, [gradients] { gradients->add_up(); }), part, rotary);
  }

  at::Tensor activate_gated(ops::Activation activation, const at::Tensor& gate, const at::Tensor& in,
                            const DropoutSpec& dropout) const override {
    DropoutSpec part = dropout;
    part.first = group_->rank() * gate.size(-1);
    return inner_->activate_gated(activation, gate, in, part);
  }

  at::Tensor classifier_loss(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                             const ops::ClassifierOptions& options, const at::Tensor& upstream) const override {
    return vocabulary_loss(vocabulary_, all_rows(x), head, targets, options, upstream);
  }

  at::Tensor classifier_losses(const at::Tensor& x, const parameters::Parameter& head, const at::Tensor& targets,
                               const ops::ClassifierOptions& options) const override {
    return vocabulary_losses(vocabulary_, x, head, targets, options);
  }

  ops::SharedOperators reference() const override {
    return std::make_shared<TensorParallel>(inner_->reference(), group_, model_, rows_);
  }

 private:
  static bool is_summed(const LinearLayer& layer) {
    return layer.site.role == layout::ParameterRole::attention_out || layer.site.role == layout::ParameterRole::mlp_out;
  }
  static LinearLayer without_bias(const LinearLayer& layer) { return {layer.weight, {}, layer.site}; }

  // What a product takes that each process computes for all rows.
  at::Tensor all_rows(const at::Tensor& x) const {
    if (!rows_) return x;
    const OwnRows& rows = *rows_;
    return ops::mapped(x, {.forward = [rows](const at::Tensor& x) { return rows.gather(x); },
                           .backward = [rows](const at::Tensor& gradient) { return rows.sum(gradient); }});
  }

  // The sums of this process's rows of y, with the bias.
  at::Tensor own_rows(const at::Tensor& y, const parameters::Parameter& bias) const {
    const auto sum = [rows = *rows_, bias](const at::Tensor& y) {
      const at::Tensor sums = rows.sum(y);
      return bias.defined() ? sums.add_(bias.compute_value().detach()) : sums;
    };
    return ops::mapped(y, {.forward = sum, .backward = gather_with_bias(bias)}, parameters::trained_value(bias));
  }

  // Each process gets the gradients of all rows, and so that of a bias.
  std::function<at::Tensor(const at::Tensor&)> gather_with_bias(const parameters::Parameter& bias) const {
    return [rows = *rows_, bias](const at::Tensor& gradient) {
      const at::Tensor all = rows.gather(gradient);
      if (bias.is_trained()) bias.add_to_gradient(all.flatten(0, 1).sum(0));
      return all;
    };
  }

  // As own_rows(), with the rows of their positions, if there are any.
  at::Tensor rows_at_positions(const at::Tensor& y, const parameters::Parameter& positions,
                               const at::Tensor& starts) const {
    if (!positions.defined()) return own_rows(y, /*bias=*/{});
    const at::Tensor places = starts.defined() ? ops::positions_in_documents(starts).flatten() : at::Tensor();
    const auto sum = [rows = *rows_, positions, places](const at::Tensor& y) {
      const at::Tensor row = at::arange(rows.first(), rows.first() + rows.count(), y.options().dtype(at::kLong));
      const at::Tensor own = places.defined() ? places.index_select(0, row.clamp_max(rows.B * rows.T - 1))
                                              : row.remainder(rows.T),
                       added = positions.compute_value().detach().index_select(0, own);
      return rows.sum(y).add_(added.unsqueeze(1));
    };
    const auto gather = [rows = *rows_, positions, places](const at::Tensor& gradient) {
      const at::Tensor all = rows.gather(gradient);
      if (!positions.is_trained()) return all;
      const at::Tensor& sums = positions.gradient();
      if (!positions.begin_contribution()) sums.zero_();
      if (places.defined())
        ops::add_position_rows(sums, places, all.flatten(0, 1));
      else
        sums.narrow(0, 0, rows.T).add_(all.sum(0, /*keepdim=*/false, at::kFloat));
      return all;
    };
    return ops::mapped(y, {.forward = sum, .backward = gather}, parameters::trained_value(positions));
  }

  // Each row counts as a sample of its own, so that its mask is that of its place among all rows.
  DropoutSpec of_own_rows(const DropoutSpec& dropout, const at::Tensor& x) const {
    if (!rows_ || dropout.probability == 0) return dropout;
    DropoutSpec own = dropout;
    own.place = dropout.place.defined() ? dropout.place.clone() : at::zeros({2}, x.options().dtype(at::kLong));
    own.place.select(0, 1).mul_(rows_->T).add_(rows_->first());
    return own;
  }

  // Logits of inference, which needs them in one place: (..., padded vocabulary), without gradients.
  at::Tensor all_logits(const at::Tensor& x, const LinearLayer& head) const {
    const at::NoGradGuard no_gradients;
    const at::Tensor own = inner_->linear(x, head, ProductInput::keep).flatten(0, -2);  // (rows, columns)
    const at::Tensor padded = at::zeros({own.size(0), vocabulary_.most_rows()}, own.options());
    padded.narrow(1, 0, own.size(1)).copy_(own);
    const at::Tensor all = gather_from(group_, padded);
    std::vector<at::Tensor> columns;
    for (int64_t rank = 0; rank < group_->size(); ++rank) {
      const auto [begin, end] = layout::vocabulary_rows(vocabulary_.padded, {rank, group_->size()});
      columns.push_back(all[rank].narrow(1, 0, end - begin));
    }
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = vocabulary_.padded;
    return at::cat(columns, 1).view(shape);
  }

  const TensorGroup group_;
  const ModelConfig model_;
  const DividedVocabulary vocabulary_;
  const std::optional<OwnRows> rows_;
};

}  // namespace

ops::SharedOperators tensor_parallel(ops::SharedOperators inner, TensorGroup group, const ModelConfig& model) {
  if (group->size() == 1) return inner;
  return std::make_shared<TensorParallel>(std::move(inner), std::move(group), model);
}

ops::SharedOperators dividing_rows(const ops::SharedOperators& operators, int64_t B, int64_t T) {
  const auto parallel = std::dynamic_pointer_cast<const TensorParallel>(operators);
  TORCH_CHECK(parallel, "dividing_rows: these are not the operators of tensor_parallel()");
  return parallel->dividing_rows(B, T);
}

// In each layer four halves of sums forward, two of them of products, and the same backward; and the sums of its normalizations' gradients.
// Beside them what the embedding, and what is behind the last normalization, has of these.
TensorSums tensor_sums(const ModelConfig& model, const layout::ModelPart& part, int64_t tokens,
                       const StreamBytes& value, GradientCheckpointing level) {
  if (part.size == 1) return {};
  constexpr double kNumbersOfHead = 4;
  const auto layers =
      static_cast<double>(layout::stages_of(model, part.stages)[static_cast<size_t>(part.stage)].count());
  const double last = part.is_last_stage() ? 1 : 0, ends = last + (part.is_first_stage() ? 1 : 0),
               of_products = (level >= GradientCheckpointing::selective ? 5 : 4) * layers,
               of_stream = (level >= GradientCheckpointing::norm ? 6 : 4) * layers + 2 * ends,
               norms = static_cast<double>(norms_of_block(model)) * layers + last;
  const int64_t rows = layout::rows_of_part(tokens, part) * part.size;
  const auto sum = [&part](double bytes) { return distributed::bytes_sent_by_sum(bytes, part.size); };
  const auto sum_of_gradients = [&](double times, int64_t values) {
    const int64_t sent = distributed::part_of(values, 0, part.size).end * part.size;
    return sum(times * static_cast<double>(sent) * sizeof(float));
  };
  const double of_heads = model.qk_norm == QkNorm::heads ? layers : 0;
  return {sum(static_cast<double>(rows * model.n_embd) * (of_products * value.product + of_stream * value.stream)) / 2 +
              sum_of_gradients(norms, (final_norm_form(model).has_bias ? 2 : 1) * model.n_embd) +
              sum_of_gradients(of_heads, 2 * model.head_dim()) +
              last * kNumbersOfHead * static_cast<double>(tokens * (part.size - 1)) * sizeof(float),
          (of_products + of_stream) / 2 + norms + of_heads};
}

}  // namespace gpt::model
