// The whole model: a GPT whose exact form is configured. GPT-2 (LayerNorm, GELU, learned positions, biases) and Llama
// (RMSNorm, SwiGLU, RoPE, grouped-query attention, no bias) are both configurations of it.
//
// Legend: B batch, T time (sequence), C n_embd, V real vocabulary, Vp padded vocabulary, H heads, D head width,
//         L layers, F hidden width of the MLP.
// Parameters are float32 and named as nanoGPT names them: transformer.wte.weight (Vp, C), transformer.wpe.weight,
// transformer.h.N.{ln_1,attn.c_attn,attn.c_proj,ln_2,mlp.*}.{weight,bias}, transformer.ln_f.weight, lm_head.weight (untied).
// Linear weights are [out, in].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"
#include "gpt/layout/cut.h"
#include "gpt/layout/stages.h"
#include "gpt/model/activation_swap.h"
#include "gpt/model/kv_cache.h"
#include "gpt/model/layer_weights.h"
#include "gpt/model/loss_options.h"
#include "gpt/model/stage_link.h"
#include "gpt/ops/operators.h"
#include "gpt/parameters/parameters.h"

namespace gpt::model {

namespace transformer {
struct Transformer;
}

// What a model gives to tokens that are there already.
struct TokenScores {
  at::Tensor log_probabilities;  // (N) float32, natural logarithms
  at::Tensor is_greedy;          // (N) bool: the token is the most probable one, and of several such the first
};

class GPT {
 public:
  // `config.vocab_size` must be set. Weights are drawn on the CPU from `seed` (GPT-2's rule: normal 0.02, residual
  // projections scaled by 1/sqrt(2L)), so they are the same on every device.
  // `types`: with a compute type of 16 bits it computes end to end in that. `tuning`: what is trained, as layout/tuning.h has it;
  // where that is all up to some layer, the backward pass ends there, and nothing is kept for it before.
  // `part`: that of a process which divides the model with others. A part of every layer must be given the operators of
  // model/tensor_parallel.h, a stage what model/stage_link.h has; values, and what is drawn, are those of the whole model.
  GPT(const ModelConfig& config, at::Device device, uint64_t seed, const parameters::ParameterTypes& types = {},
      const TuningConfig& tuning = {}, const layout::ModelPart& part = {});
  // A model with these weights. Throws gpt::Error(checkpoint) naming the first missing, extra or misshapen one (Parameters::copy_from()).
  GPT(const ModelConfig& config, at::Device device, parameters::NamedTensors values,
      const parameters::ParameterTypes& types = {}, const TuningConfig& tuning = {}, const layout::ModelPart& part = {},
      const parameters::FrozenMatrices& packed = {});
  // A model with parameters in a form that these operators read: to compute with, or to train where they are divided. `of_model`: the rows
  // of all stages.
  GPT(const ModelConfig& config, const parameters::Parameters& parameters, ops::SharedOperators operators);
  GPT(const ModelConfig& config, parameters::Parameters parameters, ops::SharedOperators operators,
      const layout::ModelPart& part, const std::vector<layout::ParameterRow>& of_model);
  ~GPT();
  GPT(GPT&&) noexcept;  // moved, never copied: a copy would share its weights

  // Logits (B, T, V) of ids (B, T) int64; only the real vocabulary.
  at::Tensor forward(const at::Tensor& ids) const;
  // What the head takes instead, (B, T, C). A stage of a model, except the first one, takes what the one before gives, (B, T, C) in the type
  // in which the model computes; and except the last one, it gives what the next one takes. Where processes divide the layers and autograd
  // records the pass, each of them has some of these B T rows instead, (rows, 1, C) (model/tensor_parallel.h).
  at::Tensor hidden(const at::Tensor& in, const LossOptions& options = {}) const;
  at::Tensor stage_input(int64_t B, int64_t T) const;  // what a stage takes for so many tokens, to be filled

  // Mean cross entropy over all B*T targets, of which masked ones count as 0, a float32 scalar on the device, with the part of a teacher,
  // where there is one. Vocabulary padding takes no part in it. Of the last stage, which takes what the one before gives.
  at::Tensor loss(const at::Tensor& in, const at::Tensor& targets, const LossOptions& options = {}) const;

  // What follows is computed by all stages of a model together, each of which is called alike.

  // The cross entropy of each target, (B, T) float32, without gradients: to validate. Zeros at all stages but the last, so that none waits.
  // `starts`: as LossOptions::document_starts.
  at::Tensor token_losses(const at::Tensor& ids, const at::Tensor& targets, const at::Tensor& starts = {}) const;

  // Scores of single targets (N) int64: the one that follows position t of row b of ids (B, T) has b * T + t in `places` (N) int64. Only
  // these rows go through the head, and only some of their logits exist at a time. Inference only; float32 whatever the logits' type.
  TokenScores score(const at::Tensor& ids, const at::Tensor& places, const at::Tensor& targets) const;

  // Logits (texts, V) after the last token of each text, whose slot of `cache` is extended by them. All tokens are computed together: they
  // are the rows of one product, whichever text they belong to. No slot may come twice, and none may exceed the capacity. Inference only;
  // the cache has the compute dtype.
  at::Tensor forward_cached(std::span<const NextTokens> texts, KvCache& cache) const;
  KvCache make_cache(int64_t slots, int64_t capacity, at::ScalarType dtype) const;

  void train(bool on) { training_ = on; }  // dropout on or off
  bool training() const { return training_; }
  const ops::SharedOperators& operators() const { return operators_; }  // our own, unless others are set
  void set_operators(ops::SharedOperators operators) { operators_ = std::move(operators); }
  // Others for the blocks in training mode, which compute nearly the same, or null.
  const ops::SharedOperators& training_operators() const { return training_operators_; }
  void set_training_operators(ops::SharedOperators operators) { training_operators_ = std::move(operators); }
  void set_gradient_checkpointing(GradientCheckpointing level) { gradient_checkpointing_ = level; }
  // The token that each document of a sequence begins with: in all but forward_cached(), whose texts are one document each, no position
  // sees what is before its own document. Positions go on across documents. Nothing: there is one document. Throws gpt::Error(config) for a
  // model whose queries choose blocks.
  void set_document_separator(std::optional<int64_t> token);
  // Null, unless the weights of blocks are there only while they compute.
  const std::shared_ptr<LayerWeights>& layer_weights() const { return layer_weights_; }
  void set_layer_weights(std::shared_ptr<LayerWeights> weights) { layer_weights_ = std::move(weights); }

  // Null, unless activations wait in the memory of the host.
  const std::shared_ptr<ActivationSwap>& activation_swap() const { return activation_swap_; }
  void set_activation_swap(std::shared_ptr<ActivationSwap> swap) { activation_swap_ = std::move(swap); }
  int64_t swapped_bytes() const { return activation_swap_ ? activation_swap_->host_bytes() : 0; }  // of the host
  void set_stage_link(std::shared_ptr<StageLink> link) { link_ = std::move(link); }
  const layout::ModelPart& part() const { return part_; }
  const layout::LayerSpan& layers() const { return layers_; }  // of its stage
  // Whether a backward pass comes to this stage, because it is trained or one before it is; and whether it goes on to the one before.
  bool is_passed_backward() const { return part_.is_last_stage() || first_trained_ < layers_.end; }
  bool passes_gradients_on() const { return gpt::layout::passes_gradients_on(part_.stage, layers_, first_trained_); }

  void copy_from(parameters::NamedTensors values,
                 const parameters::FrozenMatrices& packed = {});  // as the constructor does
  const parameters::Parameters& parameters() const { return parameters_; }
  const ModelConfig& config() const { return config_; }  // of the whole model
  at::Device device() const { return parameters_.device(); }
  double flops_per_token() const { return flops_per_token_; }  // of the whole model

 private:
  GPT(const ModelConfig& config, at::Device device, const parameters::ParameterTypes& types, const TuningConfig& tuning,
      const layout::ModelPart& part);
  at::Tensor logits(const at::Tensor& rows) const;  // (..., C) -> (..., V)
  bool divides_rows() const;                        // in a pass that is computed now
  ops::SharedOperators of_pass(const ops::SharedOperators& operators, at::IntArrayRef sizes) const;
  at::Tensor empty_stream(at::IntArrayRef sizes) const;
  at::Tensor through_stages(const at::Tensor& ids, const at::Tensor& starts = {}) const;
  at::Tensor document_starts(const at::Tensor& in, const LossOptions& options) const;
  at::Tensor shared(const at::Tensor& found, at::IntArrayRef sizes) const;

  ModelConfig config_;
  layout::ModelPart part_;
  layout::LayerSpan layers_;  // of this stage
  parameters::Parameters parameters_;
  int64_t first_trained_;  // layer of the whole model
  double flops_per_token_;
  std::unique_ptr<const transformer::Transformer> transformer_;
  ops::SharedOperators operators_, training_operators_;
  std::shared_ptr<LayerWeights> layer_weights_;
  std::shared_ptr<ActivationSwap> activation_swap_;
  std::shared_ptr<StageLink> link_;  // of a stage
  bool training_ = false;
  GradientCheckpointing gradient_checkpointing_ = GradientCheckpointing::none;
  std::optional<int64_t> document_separator_;
};

// Does work as LayerWeights::work_apart() does, whether or not the model has such weights.
inline void work_apart(const GPT& model, const std::function<void()>& work) {
  model.layer_weights() ? model.layer_weights()->work_apart(work) : work();
}

}  // namespace gpt::model
