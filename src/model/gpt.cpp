#include "gpt/model/gpt.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "block_walk.h"
#include "gpt/layout/tuning.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/ops/part.h"
#include "transformer.h"

namespace gpt::model {

GPT::GPT(const ModelConfig& config, const parameters::Parameters& parameters, ops::SharedOperators operators)
    : GPT(config, parameters, std::move(operators), {}, parameters.rows()) {}

GPT::GPT(const ModelConfig& config, parameters::Parameters parameters, ops::SharedOperators operators,
         const layout::ModelPart& part, const std::vector<layout::ParameterRow>& of_model)
    : config_(config),
      part_(part),
      layers_(layout::stages_of(config, part.stages)[static_cast<size_t>(part.stage)]),
      parameters_(std::move(parameters)),
      first_trained_(layout::first_trained_layer(of_model)),
      flops_per_token_(gpt::layout::flops_per_token(config, of_model)),
      transformer_(std::make_unique<const transformer::Transformer>(config, parameters_, layers_, part.size)),
      operators_(std::move(operators)) {}

GPT::GPT(const ModelConfig& config, at::Device device, const parameters::ParameterTypes& types,
         const TuningConfig& tuning, const layout::ModelPart& part)
    : GPT(config,
          parameters::Parameters(layout::cut(layout::parameter_table(config, tuning), config, part), device, types),
          ops::fused_operators(), part, layout::parameter_table(config, tuning)) {}

GPT::GPT(const ModelConfig& config, at::Device device, uint64_t seed, const parameters::ParameterTypes& types,
         const TuningConfig& tuning, const layout::ModelPart& part)
    : GPT(config, device, types, tuning, part) {
  parameters_.draw(seed, layout::parameter_table(config, tuning));
}

GPT::GPT(const ModelConfig& config, at::Device device, parameters::NamedTensors values,
         const parameters::ParameterTypes& types, const TuningConfig& tuning, const layout::ModelPart& part,
         const parameters::FrozenMatrices& packed)
    : GPT(config, device, types, tuning, part) {
  copy_from(std::move(values), packed);
}

GPT::~GPT() = default;
GPT::GPT(GPT&&) noexcept = default;

namespace {

// (B, T) of what a stage is given.
at::IntArrayRef batch_sizes(const at::Tensor& in, const LossOptions& options) {
  return (options.ids.defined() ? options.ids : in).sizes().slice(0, 2);
}

}  // namespace

at::Tensor GPT::hidden(const at::Tensor& in, const LossOptions& options) const {
  TORCH_CHECK(in.dim() == (part_.is_first_stage() ? 2 : 3) && in.size(1) <= config_.block_size,
              "GPT: ids must be (B, T), and what goes from stage to stage (B, T, C), with T <= block_size ",
              config_.block_size, ", got ", in.sizes());
  const at::IntArrayRef sizes = batch_sizes(in, options);
  const bool has_others = training_ && training_operators_;
  const transformer::Pass pass{.ops = of_pass(has_others ? training_operators_ : operators_, sizes),
                               .rotary = transformer_->rotations.before(sizes[1]),
                               .training = training_,
                               .dropout_place = options.dropout_place,
                               .window = options.attention_window,
                               .checkpointing = gradient_checkpointing_,
                               .document_starts = document_starts(in, options)};
  const at::AutoGradMode gradients(at::GradMode::is_enabled() && is_passed_backward());
  const bool draws =
      training_ && recomputing_draws(gradient_checkpointing_, config_, operators_->draws(device(), config_.n_embd));
  const transformer::BlockWalk blocks(*transformer_, pass, draws, layer_weights_.get(), activation_swap_.get(),
                                      options.layer_done);
  const auto enter = [&] {
    return transformer::Stream{part_.is_first_stage() ? transformer_->embed(in, options.document_starts, pass) : in,
                               {}};
  };
  const auto leave = [&](const transformer::Stream& stream) {
    const at::Tensor x = transformer_->leave(stream, pass);
    // The last block's norm has added it up, and a backward pass comes to that first.
    return part_.is_last_stage() ? x : blocks.marked(x, layers_.end);
  };
  if (!at::GradMode::is_enabled() || first_trained_ < layers_.begin)
    return leave(blocks.through(enter(), layers_.begin, layers_.end));
  transformer::Stream stream = [&] {
    const at::NoGradGuard no_gradients;
    return blocks.through(enter(), layers_.begin, first_trained_);
  }();
  // A leaf, because what is computed again has no other input that autograd knows.
  stream.x.requires_grad_();
  return leave(blocks.through(std::move(stream), first_trained_, layers_.end));
}

at::Tensor GPT::logits(const at::Tensor& rows) const {
  const ops::LinearLayer head{transformer_->lm_head, {}, {layout::ParameterRole::head, config_.n_layer}};
  return operators_->linear(rows, head, ops::ProductInput::keep).narrow(-1, 0, *config_.vocab_size);
}

at::Tensor GPT::forward(const at::Tensor& ids) const {
  const at::AutoGradMode gradients(at::GradMode::is_enabled() && part_.size == 1);
  const at::Tensor x = through_stages(ids);
  return shared(part_.is_last_stage() ? logits(x) : at::Tensor(), {ids.size(0), ids.size(1), *config_.vocab_size});
}

at::Tensor GPT::loss(const at::Tensor& in, const at::Tensor& targets, const LossOptions& options) const {
  TORCH_CHECK(batch_sizes(in, options) == targets.sizes(), "GPT: targets must have the shape of ids, got ",
              targets.sizes());
  const ops::ClassifierOptions classifier{*config_.vocab_size, options.label_smoothing, options.chunk_rows,
                                          options.teacher};
  const at::Tensor x = hidden(in, options);
  const ops::InPart part(ops::part::kHead);
  return of_pass(operators_, targets.sizes())
      ->classifier_loss(x, transformer_->lm_head, targets, classifier, options.upstream);
}

}  // namespace gpt::model
