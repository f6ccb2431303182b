#include "gpt/model/tensor_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <optional>
#include <utility>
#include <vector>

#include "gpt/layout/alignment.h"
#include "gpt/layout/stages.h"
#include "tensor_sums.h"
#include "vocabulary_classifier.h"

namespace gpt {
namespace {

using ops::DropoutSpec;
using ops::LinearLayer;
using ops::Normalization;
using ops::Normalized;
using ops::ProductInput;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What of an embedding comes after the sum over the group: positions and dropout. The same operator does it, for which the rows that were
// summed are a table.
struct AfterLookup : torch::CustomClassHolder {
  ops::SharedOperators inner;
  Parameter positions;
  int64_t offset = 0;
  DropoutSpec dropout;

  at::Tensor operator()(const Parameter& rows, int64_t B, int64_t T) const {
    const at::Tensor ids = at::arange(B * T, rows.value().options().dtype(at::kLong)).view({B, T});
    return inner->embedding(ids, rows, positions, offset, dropout);
  }
};

struct FinishEmbedding : torch::autograd::Function<FinishEmbedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& /*of autograd*/,
                            const c10::intrusive_ptr<AfterLookup>& after) {
    context->saved_data["after"] = c10::IValue::make_capsule(after);
    const at::NoGradGuard no_gradients;
    return (*after)(Parameter(x.detach().flatten(0, 1)), x.size(0), x.size(1));
  }

  // Only shapes count in what is computed again.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["after"].toCapsule();
    const auto& after = static_cast<const AfterLookup&>(*capsule);
    const at::Tensor& gradient = gradients[0];
    const Parameter rows(at::empty_like(gradient.flatten(0, 1)));
    {
      const at::AutoGradMode with_gradients(true);
      torch::autograd::backward({after(rows, gradient.size(0), gradient.size(1))}, {gradient});
    }
    return {rows.gradient().view(gradient.sizes()), at::Tensor(), at::Tensor()};
  }
};

class TensorParallel : public ops::WrappedOperators {
 public:
  TensorParallel(ops::SharedOperators inner, TensorGroup group, const ModelConfig& model)
      : WrappedOperators(std::move(inner)),
        group_(std::move(group)),
        model_(model),
        vocabulary_{group_, model.padded_vocab()} {}

  at::Tensor embedding(const at::Tensor& ids, const Parameter& table, const Parameter& positions, int64_t offset,
                       const DropoutSpec& dropout) const override {
    const auto [begin, end] = vocabulary_.rows();
    const at::Tensor is_elsewhere = (ids < begin).logical_or_(ids >= end);
    const at::Tensor own_ids = (ids - begin).masked_fill_(is_elsewhere, 0);
    const at::Tensor own = inner_->embedding(own_ids, table, {}, 0, {}).masked_fill(is_elsewhere.unsqueeze(-1), 0);
    const at::Tensor x = sum_over(group_, own, /*bias=*/{});
    if (!positions.defined() && dropout.probability == 0) return x;
    auto after = c10::make_intrusive<AfterLookup>();
    after->inner = inner_, after->positions = positions, after->offset = offset, after->dropout = dropout;
    return FinishEmbedding::apply(x, positions.is_trained() ? std::optional(positions.value()) : std::nullopt, after);
  }

  // Behind each of them is a product whose columns are divided.
  Normalized add_norm(const Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                      const DropoutSpec& dropout) const override {
    Normalized result = inner_->add_norm(norm, x, branch, dropout);
    sum_gradient_over(group_, result.normed);
    return result;
  }

  at::Tensor linear(const at::Tensor& x, const LinearLayer& layer, ProductInput input) const override {
    if (layer.site.role == ParameterRole::head) return all_logits(x, layer);
    if (!is_summed(layer)) return inner_->linear(x, layer, input);
    return sum_over(group_, inner_->linear(x, without_bias(layer), input), layer.bias);
  }

  at::Tensor linear_for_backward(const at::Tensor& x, const LinearLayer& layer) const override {
    if (!is_summed(layer)) return inner_->linear_for_backward(x, layer);
    return with_bias_for_backward(inner_->linear_for_backward(x, without_bias(layer)), layer.bias);
  }

  at::Tensor attention(at::Tensor qkv, const ops::AttentionSpec& spec, const ops::RotaryTables& rotary) const override {
    ops::AttentionSpec part = spec;
    part.dropout.first = group_->rank() * spec.heads;
    part.dropout.all_heads = model_.heads();
    return inner_->attention(std::move(qkv), part, rotary);
  }

  at::Tensor activate_gated(ops::Activation activation, const at::Tensor& gate, const at::Tensor& in,
                            const DropoutSpec& dropout) const override {
    DropoutSpec part = dropout;
    part.first = group_->rank() * gate.size(-1);
    return inner_->activate_gated(activation, gate, in, part);
  }

  at::Tensor classifier_loss(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                             const ops::ClassifierOptions& options, const at::Tensor& upstream) const override {
    return vocabulary_loss(vocabulary_, x, head, targets, options, upstream);
  }

  at::Tensor classifier_losses(const at::Tensor& x, const Parameter& head, const at::Tensor& targets,
                               const ops::ClassifierOptions& options) const override {
    return vocabulary_losses(vocabulary_, x, head, targets, options);
  }

  ops::SharedOperators reference() const override {
    return std::make_shared<TensorParallel>(inner_->reference(), group_, model_);
  }

 private:
  static bool is_summed(const LinearLayer& layer) {
    return layer.site.role == ParameterRole::attention_out || layer.site.role == ParameterRole::mlp_out;
  }
  static LinearLayer without_bias(const LinearLayer& layer) { return {layer.weight, {}, layer.site}; }

  // Of inference, which needs them in one place: (..., padded vocabulary), without gradients.
  at::Tensor all_logits(const at::Tensor& x, const LinearLayer& head) const {
    const at::NoGradGuard no_gradients;
    const at::Tensor own = inner_->linear(x, head, ProductInput::keep).flatten(0, -2);  // (rows, columns)
    const at::Tensor padded = at::zeros({own.size(0), vocabulary_.most_rows()}, own.options());
    padded.narrow(1, 0, own.size(1)).copy_(own);
    const at::Tensor all = gather_from(group_, padded);
    std::vector<at::Tensor> columns;
    for (int64_t rank = 0; rank < group_->size(); ++rank) {
      const auto [begin, end] = vocabulary_rows(vocabulary_.padded, {rank, group_->size()});
      columns.push_back(all[rank].narrow(1, 0, end - begin));
    }
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = vocabulary_.padded;
    return at::cat(columns, 1).view(shape);
  }

  const TensorGroup group_;
  const ModelConfig model_;
  const DividedVocabulary vocabulary_;
};

}  // namespace

ops::SharedOperators tensor_parallel(ops::SharedOperators inner, TensorGroup group, const ModelConfig& model) {
  if (group->size() == 1) return inner;
  return std::make_shared<TensorParallel>(std::move(inner), std::move(group), model);
}

// Of each layer: two sums forward and two backward. Beside them that of the embedding, and that behind the last normalization.
double bytes_of_tensor_sums(const ModelConfig& model, const ModelPart& part, double tokens, const StreamBytes& value,
                            bool recomputed) {
  if (part.size == 1) return 0;
  constexpr double kNumbersOfHead = 4;
  const auto layers = static_cast<double>(stages_of(model, part.stages)[static_cast<size_t>(part.stage)].count()),
             others = static_cast<double>(part.size - 1), values = tokens * static_cast<double>(model.n_embd);
  const int64_t at_ends = (part.is_first_stage() ? 1 : 0) + (part.is_last_stage() ? 1 : 0);
  const double sums =
      (recomputed ? 3 : 2) * layers * value.product + (2 * layers + static_cast<double>(at_ends)) * value.stream;
  return distributed::bytes_sent_by_sum(values * sums, part.size) +
         (part.is_last_stage() ? kNumbersOfHead * tokens * sizeof(float) * others : 0);
}

}  // namespace gpt
