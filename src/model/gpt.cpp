#include "gpt/model/gpt.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>

#include "gpt/model/gradient_mark.h"
#include "gpt/model/recompute.h"
#include "gpt/ops/fused.h"
#include "gpt/ops/part.h"
#include "gpt/ops/rotary.h"

namespace gpt {
namespace {

// How a forward pass computes.
struct Pass {
  ops::SharedOperators ops;
  bool training;             // with dropout
  at::Tensor dropout_place;  // as ops::DropoutSpec has it
  GradientCheckpointing checkpointing = GradientCheckpointing::none;
  BodyRun run = BodyRun::first;  // the run of what is recomputed

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
    const InPart part(part::kProducts);
    return pass.ops->linear(x, layer, input);
  }

  // As the last product of what is recomputed.
  at::Tensor last(const at::Tensor& x, const Pass& pass, ops::ProductInput input) const {
    if (pass.run == BodyRun::first) return (*this)(x, pass, input);
    const InPart part(part::kProducts);
    return pass.ops->linear_for_backward(x, layer);
  }

  at::Tensor with_gelu(const at::Tensor& x, const Pass& pass, ops::ProductInput input) const {
    return pass.ops->linear_gelu(x, layer, input);
  }
};

// The residual stream. What a layer adds to it joins it where it is read next, in one pass with the normalization there.
struct Stream {
  at::Tensor x, branch;           // (B, T, C); the branch undefined where nothing is to be added
  ops::DropoutSpec dropout = {};  // dropout of the branch
};

ops::Normalized add_norm(const ops::Normalization& norm, const Stream& stream, const Pass& pass) {
  const InPart part(part::kNorm);
  return pass.ops->add_norm(norm, stream.x, stream.branch, stream.dropout);
}

// The sum, with the dropout that a normalization of it would draw.
at::Tensor joined(const ops::Normalization& norm, const Stream& stream, const Pass& pass) {
  if (stream.dropout.probability > 0) return add_norm(norm, stream, pass).sum;
  const InPart part(part::kNorm);
  return stream.x + stream.branch;
}

// The keys and values that one layer has seen so far, and where the next ones go.
struct LayerCache {
  at::Tensor keys, values;  // (B, kv heads, capacity, D)
  int64_t length;

  void append(at::Tensor& k, at::Tensor& v) const {
    const int64_t t = k.size(2);
    keys.narrow(2, length, t).copy_(k);
    values.narrow(2, length, t).copy_(v);
    k = keys.narrow(2, 0, length + t);
    v = values.narrow(2, 0, length + t);
  }
};

struct Attention {
  ops::AttentionSpec spec;
  ops::DropoutSpec dropout_after;  // of what it adds to the stream
  Linear c_attn, c_proj;

  // Before the output product.
  at::Tensor operator()(const at::Tensor& x, const ops::RotaryTables& rotary, const Pass& pass,
                        const LayerCache* cache) const {
    at::Tensor qkv = c_attn(x, pass, pass.input_from(GradientCheckpointing::norm));  // (B, T, (H + 2 kv heads) D)
    return cache ? attend_to(*cache, std::move(qkv), rotary, pass) : attend(std::move(qkv), rotary, pass);
  }

 private:
  at::Tensor attend(at::Tensor qkv, const ops::RotaryTables& rotary, const Pass& pass) const {
    const InPart part(part::kAttention);
    ops::AttentionSpec of_pass = spec;
    of_pass.dropout = pass.dropout(spec.dropout);
    return pass.ops->attention(std::move(qkv), of_pass, rotary);
  }

  // The keys and values go into the cache, and the queries see all that is there.
  at::Tensor attend_to(const LayerCache& cache, at::Tensor qkv, const ops::RotaryTables& rotary,
                       const Pass& pass) const {
    const int64_t T = qkv.size(1), past = cache.length;
    const ops::Heads heads = pass.ops->split_heads(std::move(qkv), spec, rotary);
    const at::Tensor q = heads.q.transpose(1, 2);                         // (B, H, T, D)
    at::Tensor k = heads.k.transpose(1, 2), v = heads.v.transpose(1, 2);  // (B, kv heads, T, D)
    cache.append(k, v);
    // is_causal aligns the mask to the top left corner, which is right only without a past. A single query needs no mask:
    // it sees all keys.
    std::optional<at::Tensor> mask;
    if (past > 0 && T > 1) mask = at::ones({T, past + T}, q.options().dtype(at::kBool)).tril(past);
    const at::Tensor y = at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0.0, past == 0, std::nullopt,
                                                          spec.kv_heads < spec.heads);
    return y.transpose(1, 2).flatten(2);
  }
};

// The gated MLP applies dropout before its projection; what GPT-2 applies after it is the stream's.
struct FeedForward {
  Mlp kind;
  ops::DropoutSpec dropout;
  Linear gate, in, out;  // gelu has no gate

  at::Tensor operator()(const at::Tensor& x, const Pass& pass) const {
    const ops::ProductInput of_norm = pass.input_from(GradientCheckpointing::norm),
                            of_activation = pass.input_from(GradientCheckpointing::activation);
    if (kind == Mlp::gelu) return out.last(in.with_gelu(x, pass, of_norm), pass, of_activation);
    const auto [open, opened] = gate_and_in(x, pass, of_norm);
    return out.last(gated(open, opened, pass), pass, of_activation);
  }

  ops::DropoutSpec dropout_after() const { return kind == Mlp::gelu ? dropout : ops::DropoutSpec(); }

 private:
  std::pair<at::Tensor, at::Tensor> gate_and_in(const at::Tensor& x, const Pass& pass, ops::ProductInput input) const {
    const InPart part(part::kProducts);
    return pass.ops->linear_pair(x, gate.layer, in.layer, input);
  }

  at::Tensor gated(const at::Tensor& open, const at::Tensor& x, const Pass& pass) const {
    using ops::Activation;
    const InPart part(part::kActivation);
    const Activation activation = kind == Mlp::swiglu ? Activation::silu : Activation::gelu;
    return pass.ops->activate_gated(activation, open, x, pass.dropout(dropout));
  }
};

struct Block {
  ops::Normalization ln_1;
  Attention attn;
  ops::Normalization ln_2;
  FeedForward mlp;

  Stream operator()(const Stream& in, const ops::RotaryTables& rotary, const Pass& pass,
                    const LayerCache* cache = nullptr) const {
    const auto [x, first] = add_norm(ln_1, in, pass);
    return after_attention(x, attn(first, rotary, pass, cache), pass);
  }

  // The same with gradient checkpointing of what comes after attention, or of all; pass.checkpointing says which.
  Stream recomputed(const Stream& in, const ops::RotaryTables& rotary, const Pass& pass, bool draws) const {
    const auto inner_pass = [ops = pass.ops, training = pass.training, place = pass.dropout_place](BodyRun run) {
      return Pass{.ops = ops, .training = training, .dropout_place = place, .run = run};
    };
    if (pass.checkpointing == GradientCheckpointing::block) {
      const auto body = [this, rotary, inner_pass](const std::vector<at::Tensor>& x, BodyRun run) {
        const Pass inner = inner_pass(run);
        return joined(ln_1, (*this)({x[0], {}}, rotary, inner), inner);
      };
      return {recompute_in_backward(body, {in.x}, draws), {}};
    }
    const auto [x, first] = add_norm(ln_1, in, pass);
    const at::Tensor attended = attn(first, rotary, pass, /*cache=*/nullptr);
    const auto body = [this, inner_pass](const std::vector<at::Tensor>& inputs, BodyRun run) {
      const Pass inner = inner_pass(run);
      return joined(ln_2, after_attention(inputs[0], inputs[1], inner), inner);
    };
    return {recompute_in_backward(body, {x, attended}, draws), {}};
  }

 private:
  Stream after_attention(const at::Tensor& x, const at::Tensor& attended, const Pass& pass) const {
    const auto [y, second] = add_norm(ln_2, {x, attn.c_proj(attended, pass), pass.dropout(attn.dropout_after)}, pass);
    return {y, mlp(second, pass), pass.dropout(mlp.dropout_after())};
  }
};

}  // namespace

struct GPT::Transformer {
  Parameter wte, wpe;  // (Vp, C); (block_size, C) or empty
  ops::DropoutSpec dropout;
  std::vector<Block> h;
  ops::Normalization ln_f;
  Parameter lm_head;         // (Vp, C); the embedding itself where they are tied
  ops::RotaryTables rotary;  // tables for block_size positions; undefined with learned ones

  Transformer(const ModelConfig& config, const Parameters& parameters) {
    using Role = ParameterRole;
    using ops::DropoutKind;
    const auto dropout_at = [&](DropoutKind kind, int64_t layer) {
      return ops::DropoutSpec{config.dropout, dropout_site(kind, layer)};
    };
    const auto linear = [&](Role role, int64_t layer) {
      return Linear{{parameters.weight(role, layer), parameters.bias(role, layer), {role, layer}}};
    };
    const auto norm = [&](Role role, int64_t layer) {
      return ops::Normalization{config.norm, config.norm_eps, parameters.weight(role, layer),
                                parameters.bias(role, layer)};
    };
    const int64_t before = -1, after = config.n_layer;
    wte = parameters.weight(Role::token_embedding, before);
    wpe = parameters.weight(Role::position_embedding, before);
    dropout = dropout_at(DropoutKind::embedding, before);
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
      h.push_back({norm(Role::attention_norm, layer),
                   {{config.heads(), config.kv_heads(), dropout_at(DropoutKind::attention, layer), layer},
                    dropout_at(DropoutKind::attention_out, layer),
                    linear(Role::attention_in, layer),
                    linear(Role::attention_out, layer)},
                   norm(Role::mlp_norm, layer),
                   {config.mlp, dropout_at(DropoutKind::mlp, layer), linear(Role::mlp_gate, layer),
                    linear(Role::mlp_in, layer), linear(Role::mlp_out, layer)}});
    }
    ln_f = norm(Role::final_norm, after);
    lm_head = config.tie_weights ? wte : parameters.weight(Role::head, after);
    if (config.position == Position::rope) {
      rotary = ops::rotary_tables(config.block_size, config.head_dim(), config.rope_theta, parameters.device());
    }
  }

  // Embeds `ids` at positions offset, offset + 1, ...
  at::Tensor embed(const at::Tensor& ids, int64_t offset, const Pass& pass) const {
    const InPart part(part::kEmbedding);
    return pass.ops->embedding(ids, wte, wpe, offset, pass.dropout(dropout));  // (B, T, C)
  }

  at::Tensor normalized(const Stream& stream, const Pass& pass) const { return add_norm(ln_f, stream, pass).normed; }

  ops::RotaryTables rotary_at(int64_t offset, int64_t length) const {
    if (!rotary.cos.defined()) return {};
    return {rotary.cos.narrow(0, offset, length), rotary.sin.narrow(0, offset, length)};
  }
};

GPT::GPT(const ModelConfig& config, at::Device device, const ParameterTypes& types)
    : config_(config),
      parameters_(parameter_table(config), device, types),
      transformer_(std::make_unique<const Transformer>(config, parameters_)),
      operators_(ops::fused_operators()) {}

GPT::GPT(const ModelConfig& config, at::Device device, uint64_t seed, const ParameterTypes& types)
    : GPT(config, device, types) {
  parameters_.draw(seed);
}

GPT::GPT(const ModelConfig& config, at::Device device, const NamedTensors& values, const ParameterTypes& types)
    : GPT(config, device, types) {
  parameters_.copy_from(values);
}

GPT::~GPT() = default;
GPT::GPT(GPT&&) noexcept = default;

at::Tensor GPT::hidden(const at::Tensor& ids, const LossOptions& options) const {
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) <= config_.block_size, "GPT: ids must be (B, T) with T <= block_size ",
              config_.block_size, ", got ", ids.sizes());
  const auto rotary = transformer_->rotary_at(0, ids.size(1));
  const Pass pass{operators_, training_, options.dropout_place, gradient_checkpointing_};
  const bool draws =
      training_ && recomputing_draws(gradient_checkpointing_, config_, operators_->draws(device(), config_.n_embd));
  Stream stream{transformer_->embed(ids, 0, pass), {}};
  for (size_t layer = 0; layer < transformer_->h.size(); ++layer) {
    const Block& block = transformer_->h[layer];
    if (options.layer_done)
      stream.x = mark_gradient(stream.x, [done = options.layer_done, layer] { done(static_cast<int64_t>(layer)); });
    stream = gradient_checkpointing_ >= GradientCheckpointing::selective ? block.recomputed(stream, rotary, pass, draws)
                                                                         : block(stream, rotary, pass);
  }
  return transformer_->normalized(stream, pass);
}

at::Tensor GPT::logits(const at::Tensor& rows) const {
  const ops::LinearLayer head{transformer_->lm_head, {}, {ParameterRole::head, config_.n_layer}};
  return operators_->linear(rows, head, ops::ProductInput::keep).narrow(-1, 0, *config_.vocab_size);
}

at::Tensor GPT::forward(const at::Tensor& ids) const { return logits(hidden(ids)); }

at::Tensor GPT::loss(const at::Tensor& ids, const at::Tensor& targets, const LossOptions& options) const {
  TORCH_CHECK(ids.sizes() == targets.sizes(), "GPT: targets must have the shape of ids, got ", targets.sizes());
  const ops::ClassifierOptions classifier{.vocabulary = *config_.vocab_size,
                                          .label_smoothing = options.label_smoothing,
                                          .chunk_rows = options.chunk_rows};
  const at::Tensor x = hidden(ids, options);
  const InPart part(part::kHead);
  return operators_->classifier_loss(x, transformer_->lm_head, targets, classifier, options.upstream);
}

at::Tensor GPT::token_losses(const at::Tensor& ids, const at::Tensor& targets) const {
  TORCH_CHECK(ids.sizes() == targets.sizes(), "GPT: targets must have the shape of ids, got ", targets.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor x = hidden(ids);
  const InPart part(part::kHead);
  return operators_->classifier_losses(x, transformer_->lm_head, targets, {.vocabulary = *config_.vocab_size})
      .view_as(targets);
}

at::Tensor GPT::forward_cached(const at::Tensor& ids, KvCache& cache) const {
  const int64_t T = ids.size(1);
  TORCH_CHECK(cache.length + T <= cache.capacity(), "GPT: the cache holds ", cache.length, " of ", cache.capacity(),
              " positions, no room for ", T, " more");
  const auto rotary = transformer_->rotary_at(cache.length, T);
  const Pass pass{operators_, /*training=*/false, /*dropout_place=*/{}};
  Stream stream{transformer_->embed(ids, cache.length, pass), {}};
  for (size_t layer = 0; layer < transformer_->h.size(); ++layer) {
    const LayerCache layer_cache{cache.keys[layer], cache.values[layer], cache.length};
    stream = transformer_->h[layer](stream, rotary, pass, &layer_cache);
  }
  cache.length += T;
  for (at::Tensor* part : {&stream.x, &stream.branch}) *part = part->select(1, T - 1).contiguous();
  return logits(transformer_->normalized(stream, pass));
}

KvCache GPT::make_cache(int64_t batch, int64_t capacity, at::ScalarType dtype) const {
  TORCH_CHECK(capacity <= config_.block_size, "GPT: a cache of ", capacity, " positions exceeds block_size ",
              config_.block_size);
  KvCache cache;
  const auto options = at::TensorOptions().device(device()).dtype(dtype);
  for (int64_t layer = 0; layer < config_.n_layer; ++layer) {
    cache.keys.push_back(at::empty({batch, config_.kv_heads(), capacity, config_.head_dim()}, options));
    cache.values.push_back(at::empty_like(cache.keys.back()));
  }
  return cache;
}

}  // namespace gpt
