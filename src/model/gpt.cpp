#include "gpt/model/gpt.h"

#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <limits>
#include <optional>

#include "gpt/model/recompute.h"
#include "gpt/ops/attention.h"
#include "gpt/ops/embedding.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/rotary.h"

namespace gpt {
namespace {

struct Linear {
  Parameter weight, bias;  // (out, in); (out) or empty

  at::Tensor operator()(const at::Tensor& x) const { return ops::linear(x, weight, bias.tracked()); }
};

struct Normalization {
  Norm kind;
  double eps;
  Parameter weight, bias;  // (C); bias may be empty

  at::Tensor operator()(const at::Tensor& x) const {
    const at::IntArrayRef shape = weight.value().sizes();
    return kind == Norm::layernorm ? at::layer_norm(x, shape, weight.tracked(), bias.tracked(), eps)
                                   : at::rms_norm(x, shape, weight.tracked(), eps);
  }
};

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
  int64_t n_head, n_kv_head;
  double dropout;
  Linear c_attn, c_proj;

  at::Tensor operator()(const at::Tensor& x, const ops::RotaryTables& rotary, bool training,
                        const LayerCache* cache = nullptr) const {
    const at::Tensor qkv = c_attn(x);  // (B, T, (H + 2 kv heads) D)
    const at::Tensor y = cache ? attend_to(*cache, qkv, rotary)
                               : ops::attention(qkv, n_head, n_kv_head, training ? dropout : 0.0, rotary);
    return at::dropout(c_proj(y), dropout, training);
  }

 private:
  // The keys and values go into the cache, and the queries see all that is there.
  at::Tensor attend_to(const LayerCache& cache, const at::Tensor& qkv, const ops::RotaryTables& rotary) const {
    const int64_t B = qkv.size(0), T = qkv.size(1), H = n_head, past = cache.length;
    auto parts = qkv.view({B, T, H + 2 * n_kv_head, -1}).split_with_sizes({H, n_kv_head, n_kv_head}, 2);
    if (rotary.cos.defined()) {
      parts[0] = ops::rotary(parts[0], rotary);
      parts[1] = ops::rotary(parts[1], rotary);
    }
    const at::Tensor q = parts[0].transpose(1, 2);                          // (B, H, T, D)
    at::Tensor k = parts[1].transpose(1, 2), v = parts[2].transpose(1, 2);  // (B, kv heads, T, D)
    cache.append(k, v);
    // is_causal aligns the mask to the top left corner, which is right only without a past. A single query needs no mask:
    // it sees all keys.
    std::optional<at::Tensor> mask;
    if (past > 0 && T > 1) mask = at::ones({T, past + T}, q.options().dtype(at::kBool)).tril(past);
    const at::Tensor y =
        at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0.0, past == 0, std::nullopt, n_kv_head < n_head);
    return y.transpose(1, 2).flatten(2);
  }
};

// GPT-2's MLP applies dropout after its projection, the gated one before it.
struct FeedForward {
  Mlp kind;
  double dropout;
  Linear gate, in, out;  // gelu has no gate

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    if (kind == Mlp::gelu) return at::dropout(out(at::gelu(in(x), "tanh")), dropout, training);
    const at::Tensor open = kind == Mlp::swiglu ? at::silu(gate(x)) : at::gelu(gate(x), "tanh");
    return out(at::dropout(open * in(x), dropout, training));
  }
};

struct Block {
  Normalization ln_1;
  Attention attn;
  Normalization ln_2;
  FeedForward mlp;

  at::Tensor operator()(const at::Tensor& x, const ops::RotaryTables& rotary, bool training,
                        const LayerCache* cache = nullptr) const {
    const at::Tensor y = x + attn(ln_1(x), rotary, training, cache);
    return y + mlp(ln_2(y), training);
  }
};

}  // namespace

struct GPT::Transformer {
  Parameter wte, wpe;  // (Vp, C); (block_size, C) or empty
  double dropout;
  std::vector<Block> h;
  Normalization ln_f;
  Parameter lm_head;         // (Vp, C); the embedding itself where they are tied
  at::Tensor padding_bias;   // of the head: -inf in the columns that pad the vocabulary, undefined without padding
  ops::RotaryTables rotary;  // of block_size positions, undefined with learned ones

  Transformer(const ModelConfig& config, const Parameters& parameters) : dropout(config.dropout) {
    using Role = ParameterRole;
    const auto linear = [&](Role role, int64_t layer) {
      return Linear{parameters.weight(role, layer), parameters.bias(role, layer)};
    };
    const auto norm = [&](Role role, int64_t layer) {
      return Normalization{config.norm, config.norm_eps, parameters.weight(role, layer), parameters.bias(role, layer)};
    };
    const int64_t before = -1, after = config.n_layer;
    wte = parameters.weight(Role::token_embedding, before);
    wpe = parameters.weight(Role::position_embedding, before);
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
      h.push_back({norm(Role::attention_norm, layer),
                   {config.n_head, config.kv_heads(), dropout, linear(Role::attention_in, layer),
                    linear(Role::attention_out, layer)},
                   norm(Role::mlp_norm, layer),
                   {config.mlp, dropout, linear(Role::mlp_gate, layer), linear(Role::mlp_in, layer),
                    linear(Role::mlp_out, layer)}});
    }
    ln_f = norm(Role::final_norm, after);
    lm_head = config.tie_weights ? wte : parameters.weight(Role::head, after);
    if (const int64_t V = *config.vocab_size, Vp = config.padded_vocab(); V < Vp) {
      padding_bias = at::zeros({Vp}, parameters.device());
      padding_bias.narrow(0, V, Vp - V).fill_(-std::numeric_limits<float>::infinity());
    }
    if (config.position == Position::rope) {
      rotary = ops::rotary_tables(config.block_size, config.head_dim(), config.rope_theta, parameters.device());
    }
  }

  // Of positions offset, offset + 1, ...
  at::Tensor embed(const at::Tensor& ids, int64_t offset, bool training) const {
    at::Tensor x = ops::embedding(ids, wte);  // (B, T, C)
    if (wpe.defined()) x = x + wpe.tracked().narrow(0, offset, ids.size(1));
    return at::dropout(x, dropout, training);
  }

  at::Tensor logits(const at::Tensor& x) const { return ops::linear(ln_f(x), lm_head, padding_bias); }  // (..., Vp)

  ops::RotaryTables rotary_at(int64_t offset, int64_t length) const {
    if (!rotary.cos.defined()) return {};
    return {rotary.cos.narrow(0, offset, length), rotary.sin.narrow(0, offset, length)};
  }
};

GPT::GPT(const ModelConfig& config, at::Device device)
    : config_(config),
      parameters_(parameter_table(config), device),
      transformer_(std::make_unique<const Transformer>(config, parameters_)) {}

GPT::GPT(const ModelConfig& config, at::Device device, uint64_t seed) : GPT(config, device) { parameters_.draw(seed); }

GPT::GPT(const ModelConfig& config, at::Device device, const NamedTensors& values) : GPT(config, device) {
  parameters_.copy_from(values);
}

GPT::~GPT() = default;
GPT::GPT(GPT&&) noexcept = default;

// Logits (B, T, Vp); those of the padding are -inf.
at::Tensor GPT::padded_logits(const at::Tensor& ids) const {
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) <= config_.block_size, "GPT: ids must be (B, T) with T <= block_size ",
              config_.block_size, ", got ", ids.sizes());
  const auto rotary = transformer_->rotary_at(0, ids.size(1));
  at::Tensor x = transformer_->embed(ids, 0, training_);  // (B, T, C)
  for (const Block& block : transformer_->h) {
    const auto run = [&block, rotary, training = training_](const at::Tensor& x) { return block(x, rotary, training); };
    x = gradient_checkpointing_ ? recompute_in_backward(run, x) : run(x);
  }
  return transformer_->logits(x);
}

at::Tensor GPT::forward(const at::Tensor& ids) const { return padded_logits(ids).narrow(-1, 0, *config_.vocab_size); }

at::Tensor GPT::loss(const at::Tensor& ids, const at::Tensor& targets, double label_smoothing) const {
  TORCH_CHECK(ids.sizes() == targets.sizes(), "GPT: targets must have the shape of ids, got ", targets.sizes());
  const at::Tensor logits = padded_logits(ids).flatten(0, 1).to(at::kFloat);  // (B*T, Vp)
  if (label_smoothing == 0.0) return at::cross_entropy_loss(logits, targets.flatten());
  // cross_entropy_loss would spread the smoothing over the padding too.
  const at::Tensor log_probabilities = at::log_softmax(logits, -1);
  const at::Tensor uniform = -log_probabilities.narrow(-1, 0, *config_.vocab_size).mean();
  return (1 - label_smoothing) * at::nll_loss(log_probabilities, targets.flatten()) + label_smoothing * uniform;
}

at::Tensor GPT::forward_cached(const at::Tensor& ids, KvCache& cache) const {
  const int64_t T = ids.size(1);
  TORCH_CHECK(cache.length + T <= cache.capacity(), "GPT: the cache holds ", cache.length, " of ", cache.capacity(),
              " positions, no room for ", T, " more");
  const auto rotary = transformer_->rotary_at(cache.length, T);
  at::Tensor x = transformer_->embed(ids, cache.length, /*training=*/false);
  for (size_t layer = 0; layer < transformer_->h.size(); ++layer) {
    const LayerCache layer_cache{cache.keys[layer], cache.values[layer], cache.length};
    x = transformer_->h[layer](x, rotary, /*training=*/false, &layer_cache);
  }
  cache.length += T;
  const at::Tensor last = transformer_->ln_f(x.select(1, T - 1));  // (B, C)
  return ops::linear(last, transformer_->lm_head, transformer_->padding_bias).narrow(-1, 0, *config_.vocab_size);
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

std::string attention_path(const ModelConfig& config, at::Device device, at::ScalarType dtype, bool training) {
  if (device.is_cpu()) return "flash";  // ops::attention
  const auto heads = [&](int64_t count) {
    const auto options = at::TensorOptions().device(device).dtype(dtype);
    return at::empty({1, count, config.block_size, config.head_dim()}, options).requires_grad_(training);
  };
  const at::Tensor q = heads(config.n_head), k = heads(config.kv_heads());
  const double dropout = training ? config.dropout : 0.0;
  const auto choice =
      at::_fused_sdp_choice(q, k, k, {}, dropout, /*is_causal=*/true, std::nullopt, config.kv_heads() < config.n_head);
  switch (static_cast<at::SDPBackend>(choice)) {
    case at::SDPBackend::flash_attention: return "flash";
    case at::SDPBackend::efficient_attention: return "efficient";
    case at::SDPBackend::cudnn_attention: return "cudnn";
    default: break;
  }
  return fmt::format("math: no fused kernel supports {} with heads of width {} here", c10::toString(dtype),
                     config.head_dim());
}

}  // namespace gpt
