// The model's parts, from a product to the whole: what nanoGPT's model.py has as MLP, CausalSelfAttention and Block. gpt.cpp sends tokens
// through them. What else there is to know is beside them: how they are made of parameters in transformer.cpp, what goes on around a block
// in training in block_walk.h, generation with a cache in gpt_cached.cpp, and stages of several processes in gpt_stages.cpp.
//
// B batch, T time, C n_embd, H heads, D their width; (1, N, C) where the tokens of several texts are generated.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "gpt/config/training_config.h"
#include "gpt/layout/stages.h"
#include "gpt/model/recompute.h"
#include "gpt/ops/operators.h"
#include "gpt/ops/part.h"
#include "rotations.h"

namespace gpt::model::transformer {

// How a forward pass computes.
struct Pass {
  ops::SharedOperators ops;
  std::vector<ops::RotaryTables> rotary;  // for its positions, of each rotation of the model
  bool training = false;                  // with dropout
  at::Tensor dropout_place = {};          // as ops::DropoutSpec has it
  std::optional<int64_t> window = {};     // of windowed layers, instead of their own
  GradientCheckpointing checkpointing = GradientCheckpointing::none;
  BodyRun run = BodyRun::first;     // of what is recomputed
  at::Tensor document_starts = {};  // as ops::AttentionSpec has it

  ops::DropoutSpec dropout(const ops::DropoutSpec& of_model) const {
    if (!training) return {};
    return {of_model.probability, of_model.site, dropout_place};
  }
  // For a product whose input is computed again from `level` on.
  ops::ProductInput input_from(GradientCheckpointing level) const {
    return checkpointing >= level ? ops::ProductInput::repeat : ops::ProductInput::keep;
  }
};

struct Linear {
  ops::LinearLayer layer;

  at::Tensor operator()(const at::Tensor& x, const Pass& pass,
                        ops::ProductInput input = ops::ProductInput::keep) const {
    const ops::InPart part(ops::part::kProducts);
    return pass.ops->linear(x, of(pass), input);
  }

  // With the dropout of its adapter, where the pass has any.
  ops::LinearLayer of(const Pass& pass) const {
    ops::LinearLayer of_pass = layer;
    of_pass.adapter.dropout = pass.dropout(layer.adapter.dropout);
    return of_pass;
  }

  // As the last product of what is recomputed.
  at::Tensor last(const at::Tensor& x, const Pass& pass, ops::ProductInput input) const {
    if (pass.run == BodyRun::first) return (*this)(x, pass, input);
    const ops::InPart part(ops::part::kProducts);
    return pass.ops->linear_for_backward(x, of(pass));
  }
};

// The residual stream. What a layer adds to it joins it where it is read next, in one pass with the normalization there.
struct Stream {
  at::Tensor x, branch;           // (B, T, C); the branch undefined where nothing is to be added
  ops::DropoutSpec dropout = {};  // dropout of the branch
};

ops::Normalized add_norm(const ops::Normalization& norm, const Stream& stream, const Pass& pass);
// The sum alone. `any`: a normalization of the same columns.
at::Tensor joined(const Stream& stream, const ops::Normalization& any, const Pass& pass);

// The gated MLP applies dropout before its projection; what GPT-2 applies after it is the stream's.
struct FeedForward {
  Mlp kind;
  ops::DropoutSpec dropout;
  Linear gate, in, out;         // gelu and relu2 have no gate
  ops::Normalization out_norm;  // of what it gives, or none

  at::Tensor operator()(const at::Tensor& x, const Pass& pass) const {
    const ops::ProductInput of_norm = pass.input_from(GradientCheckpointing::norm),
                            of_activation = pass.input_from(GradientCheckpointing::activation);
    if (!is_gated(kind))
      return give(pass.ops->linear_activated(activation(), x, in.of(pass), of_norm), pass, of_activation);
    const auto [open, opened] = gate_and_in(x, pass, of_norm);
    return give(gated(open, opened, pass), pass, of_activation);
  }

  ops::DropoutSpec dropout_after() const { return is_gated(kind) ? ops::DropoutSpec() : dropout; }

 private:
  ops::Activation activation() const { return ops::activation_of(kind); }
  // A normalization needs the values in its backward pass.
  at::Tensor give(const at::Tensor& x, const Pass& pass, ops::ProductInput input) const {
    return out_norm.weight.defined() ? out(x, pass, input) : out.last(x, pass, input);
  }

  std::pair<at::Tensor, at::Tensor> gate_and_in(const at::Tensor& x, const Pass& pass, ops::ProductInput input) const {
    const ops::InPart part(ops::part::kProducts);
    return pass.ops->linear_pair(x, gate.of(pass), in.of(pass), input);
  }

  at::Tensor gated(const at::Tensor& open, const at::Tensor& x, const Pass& pass) const {
    const ops::InPart part(ops::part::kActivation);
    return pass.ops->activate_gated(activation(), open, x, pass.dropout(dropout));
  }
};

struct Attention {
  ops::AttentionSpec spec;
  size_t rotation;                 // which of the model's
  bool has_window;                 // by the pattern: a pass may narrow one that sequences are no longer than, too
  ops::DropoutSpec dropout_after;  // of what it adds to the stream
  Linear c_attn;
  ops::Normalization query_norm, key_norm;  // of all heads of a token together, or none
  Linear c_proj;
  ops::Normalization out_norm;  // of what c_proj gives, or none

  at::Tensor queries_keys_values(const at::Tensor& x, const Pass& pass) const;  // (B, T, (H + 2 kv heads) D)

  // Before the output product.
  at::Tensor operator()(const at::Tensor& x, const Pass& pass) const {
    at::Tensor qkv = queries_keys_values(x, pass);
    const ops::InPart part(ops::part::kAttention);
    ops::AttentionSpec of_pass = spec;
    of_pass.dropout = pass.dropout(spec.dropout), of_pass.document_starts = pass.document_starts;
    if (has_window) of_pass.window = pass.window.value_or(spec.window);
    return pass.ops->attention(std::move(qkv), of_pass, pass.rotary[rotation]);
  }
};

struct Block {
  ops::Normalization ln_1;  // or none, as ln_2
  Attention attn;
  ops::Normalization ln_2;
  FeedForward mlp;

  Stream operator()(const Stream& in, const Pass& pass) const;
  Stream after_attention(const at::Tensor& x, const at::Tensor& attended, const Pass& pass) const;
  // The stream, and what attention or the MLP takes of it.
  ops::Normalized enter(const ops::Normalization& norm, const Stream& stream, const Pass& pass) const;
  const ops::Normalization& any_norm() const { return ln_2.weight.defined() ? ln_2 : mlp.out_norm; }

 private:
  static at::Tensor normed(const ops::Normalization& norm, const at::Tensor& x,
                           const Pass& pass);  // x, if there is none
};

// The blocks of a stage, and what is before and behind them where the stage has that.
struct Transformer {
  layout::LayerSpan layers;        // of the whole model
  parameters::Parameter wte, wpe;  // (Vp, C); (block_size, C) or empty
  ops::DropoutSpec dropout;
  double embedding_scale = 1;
  std::vector<Block> h;
  ops::Normalization ln_f;
  parameters::Parameter lm_head;  // (Vp, C); the embedding itself where they are tied
  Rotations rotations;            // of the blocks, for block_size positions

  Transformer(const ModelConfig& config, const parameters::Parameters& parameters, const layout::LayerSpan& layers,
              int64_t parts);

  bool has_end() const { return ln_f.weight.defined(); }

  at::Tensor embed(const at::Tensor& ids, const at::Tensor& starts, const Pass& pass) const {
    const ops::InPart part(ops::part::kEmbedding);
    return scaled(pass.ops->embedding(ids, wte, wpe, starts, pass.dropout(dropout)));  // (B, T, C)
  }

  // By the factor of embeddings, as the type of x has it.
  at::Tensor scaled(const at::Tensor& x) const;

  // What the head takes; or where the blocks of another stage follow, the stream.
  at::Tensor leave(const Stream& stream, const Pass& pass) const;
};

}  // namespace gpt::model::transformer
