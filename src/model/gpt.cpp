#include "gpt/model/gpt.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
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

#include <cmath>
#include <limits>
#include <optional>

#include "gpt/core/error.h"
#include "gpt/model/recompute.h"
#include "gpt/ops/linear.h"
#include "gpt/ops/rotary.h"

namespace gpt {
namespace {

struct Linear {
  at::Tensor weight, bias;  // (out, in); (out) or undefined

  at::Tensor operator()(const at::Tensor& x) const { return ops::linear(x, weight, bias); }
};

struct Normalization {
  Norm kind;
  double eps;
  at::Tensor weight, bias;  // (C); bias may be undefined

  at::Tensor operator()(const at::Tensor& x) const {
    return kind == Norm::layernorm ? at::layer_norm(x, weight.sizes(), weight, bias, eps)
                                   : at::rms_norm(x, weight.sizes(), weight, eps);
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
    const int64_t B = x.size(0), T = x.size(1), C = x.size(2), H = n_head;
    auto qkv = c_attn(x).view({B, T, H + 2 * n_kv_head, C / H}).split_with_sizes({H, n_kv_head, n_kv_head}, 2);
    if (rotary.cos.defined()) {
      qkv[0] = ops::rotary(qkv[0], rotary);
      qkv[1] = ops::rotary(qkv[1], rotary);
    }
    const at::Tensor q = qkv[0].transpose(1, 2);                        // (B, H, T, D)
    at::Tensor k = qkv[1].transpose(1, 2), v = qkv[2].transpose(1, 2);  // (B, kv heads, T, D)

    const int64_t past = cache ? cache->length : 0;
    if (cache) cache->append(k, v);
    // is_causal aligns the mask to the top left corner, which is right only without a past. A single query needs no mask:
    // it sees all keys.
    std::optional<at::Tensor> mask;
    if (past > 0 && T > 1) mask = at::ones({T, past + T}, q.options().dtype(at::kBool)).tril(past);
    const at::Tensor y = at::scaled_dot_product_attention(q, k, v, mask, training ? dropout : 0.0, past == 0,
                                                          std::nullopt, n_kv_head < n_head);
    return at::dropout(c_proj(y.transpose(1, 2).reshape({B, T, C})), dropout, training);
  }
};

// GPT-2's MLP applies dropout after its projection, the gated one before it.
struct FeedForward {
  Mlp kind;
  double dropout;
  Linear c_fc, c_proj;  // gelu
  Linear w1, w2, w3;    // swiglu, geglu

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    if (kind == Mlp::gelu) return at::dropout(c_proj(at::gelu(c_fc(x), "tanh")), dropout, training);
    const at::Tensor gate = kind == Mlp::swiglu ? at::silu(w1(x)) : at::gelu(w1(x), "tanh");
    return w2(at::dropout(gate * w3(x), dropout, training));
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

// GPT-2's rule. Rows that only pad the vocabulary are zero and take no random numbers, so vocab_multiple changes no weight.
at::Tensor initial_value(const ParameterShape& parameter, const ModelConfig& config, at::Generator& generator) {
  const auto& name = parameter.name;
  at::Tensor value = at::zeros(parameter.shape);
  if (name.ends_with(".bias")) return value;
  if (name.find("ln_") != std::string::npos) return value.fill_(1);
  const bool residual_projection = name.ends_with("c_proj.weight") || name.ends_with("mlp.w2.weight");
  const double std = residual_projection ? 0.02 / std::sqrt(2.0 * config.n_layer) : 0.02;
  const bool vocabulary = name.ends_with("wte.weight") || name == "lm_head.weight";
  (vocabulary ? value.narrow(0, 0, *config.vocab_size) : value).normal_(0, std, generator);
  return value;
}

at::Tensor find(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [candidate, tensor] : tensors) {
    if (candidate == name) return tensor;
  }
  return {};
}

}  // namespace

struct GPT::Transformer {
  at::Tensor wte, wpe;  // (Vp, C); (block_size, C) or undefined
  double dropout;
  std::vector<Block> h;
  Normalization ln_f;
  Linear lm_head;  // its bias is not a parameter: -inf in the columns that pad the vocabulary, undefined without padding
  ops::RotaryTables rotary;  // of block_size positions, undefined with learned ones

  Transformer(const ModelConfig& config, const NamedTensors& parameters, at::Device device) : dropout(config.dropout) {
    const auto linear = [&](const std::string& name) {
      return Linear{find(parameters, name + ".weight"), find(parameters, name + ".bias")};
    };
    const auto norm = [&](const std::string& name) {
      return Normalization{config.norm, config.norm_eps, find(parameters, name + ".weight"),
                           find(parameters, name + ".bias")};
    };
    wte = find(parameters, "transformer.wte.weight");
    wpe = find(parameters, "transformer.wpe.weight");
    for (int64_t layer = 0; layer < config.n_layer; ++layer) {
      const std::string name = fmt::format("transformer.h.{}.", layer);
      h.push_back(
          {norm(name + "ln_1"),
           {config.n_head, config.kv_heads(), dropout, linear(name + "attn.c_attn"), linear(name + "attn.c_proj")},
           norm(name + "ln_2"),
           {config.mlp, dropout, linear(name + "mlp.c_fc"), linear(name + "mlp.c_proj"), linear(name + "mlp.w1"),
            linear(name + "mlp.w2"), linear(name + "mlp.w3")}});
    }
    ln_f = norm("transformer.ln_f");
    lm_head = config.tie_weights ? Linear{wte, {}} : linear("lm_head");
    if (const int64_t V = *config.vocab_size, Vp = config.padded_vocab(); V < Vp) {
      lm_head.bias = at::zeros({Vp}, wte.options().requires_grad(false));
      lm_head.bias.narrow(0, V, Vp - V).fill_(-std::numeric_limits<float>::infinity());
    }
    if (config.position == Position::rope) {
      rotary = ops::rotary_tables(config.block_size, config.head_dim(), config.rope_theta, device);
    }
  }

  // Of positions offset, offset + 1, ...
  at::Tensor embed(const at::Tensor& ids, int64_t offset, bool training) const {
    at::Tensor x = at::embedding(wte, ids);  // (B, T, C)
    if (wpe.defined()) x = x + wpe.narrow(0, offset, ids.size(1));
    return at::dropout(x, dropout, training);
  }

  ops::RotaryTables rotary_at(int64_t offset, int64_t length) const {
    if (!rotary.cos.defined()) return {};
    return {rotary.cos.narrow(0, offset, length), rotary.sin.narrow(0, offset, length)};
  }
};

GPT::GPT(const ModelConfig& config, at::Device device, uint64_t seed) : config_(config) {
  TORCH_CHECK(config.vocab_size, "GPT: model.vocab_size must be set");
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const auto& parameter : parameter_shapes(config)) {
    at::Tensor value = initial_value(parameter, config, generator).to(device);
    parameters_.emplace_back(parameter.name, value.requires_grad_());
  }
  transformer_ = std::make_unique<const Transformer>(config, parameters_, device);
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
  return transformer_->lm_head(transformer_->ln_f(x));
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
  return transformer_->lm_head(last).narrow(-1, 0, *config_.vocab_size);
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

void GPT::load_parameters(const NamedTensors& values) {
  const auto refuse = [](const std::string& what) {
    throw Error(ExitCode::checkpoint,
                "model: " + what + "; the weights belong to another architecture: use the config they were trained with");
  };
  for (const auto& [name, parameter] : parameters_) {
    const at::Tensor value = find(values, name);
    if (!value.defined()) refuse(fmt::format("parameter '{}' is missing", name));
    if (value.sizes() != parameter.sizes()) {
      refuse(c10::str("parameter '", name, "' must be ", parameter.sizes(), ", got ", value.sizes()));
    }
  }
  for (const auto& [name, value] : values) {
    if (!find(parameters_, name).defined()) refuse(fmt::format("parameter '{}' is unknown", name));
  }
  at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters_) parameter.copy_(find(values, name));
}

at::Device GPT::device() const { return parameters_.front().second.device(); }

int64_t GPT::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters_) count += parameter.numel();
  return count;
}

double GPT::flops_per_token() const { return gpt::flops_per_token(config_); }

std::string attention_path(const ModelConfig& config, at::Device device, at::ScalarType dtype, bool training) {
  const auto heads = [&](int64_t count) {
    const auto options = at::TensorOptions().device(device).dtype(dtype);
    return at::empty({1, count, config.block_size, config.head_dim()}, options).requires_grad_(training);
  };
  const at::Tensor q = heads(config.n_head), k = heads(config.kv_heads());
  const double dropout = training ? config.dropout : 0.0;
  const auto choice =
      at::_fused_sdp_choice(q, k, k, {}, dropout, /*is_causal=*/true, std::nullopt, config.kv_heads() < config.n_head);
  switch (static_cast<at::SDPBackend>(choice)) {
    case at::SDPBackend::flash_attention:
      return "flash";
    case at::SDPBackend::efficient_attention:
      return "efficient";
    case at::SDPBackend::cudnn_attention:
      return "cudnn";
    default:
      break;
  }
  if (device.is_cpu() && dropout > 0) return "math: dropout on a CPU";
  return fmt::format("math: no fused kernel supports {} with heads of width {} here", c10::toString(dtype), config.head_dim());
}

}  // namespace gpt
