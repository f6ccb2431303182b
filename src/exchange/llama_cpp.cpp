#include "gpt/exchange/llama_cpp.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace gpt::exchange {
namespace {

// Names without the layer before them and ".weight" or ".bias" behind them.
constexpr std::pair<std::string_view, std::string_view> kGgufNames[] = {
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"transformer.ln_f", "output_norm"},
    {"model.embed_tokens", "token_embd"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};

// "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight".
std::string gguf_name(std::string_view name) {
  std::string layer;
  for (const std::string_view prefix : {"transformer.h.", "model.layers."}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    const size_t dot = name.find('.');
    layer = "blk." + std::string(name.substr(0, dot + 1));
    name.remove_prefix(dot + 1);
  }
  const size_t ending = name.rfind('.');
  const auto* const known = std::find_if(std::begin(kGgufNames), std::end(kGgufNames),
                                         [&](const auto& names) { return names.first == name.substr(0, ending); });
  if (known == std::end(kGgufNames)) throw std::logic_error("GGUF has no " + std::string(name));
  return layer + std::string(known->second) + std::string(name.substr(ending));
}

bool is_always_f32(const GgufTensor& tensor) {
  return tensor.shape.size() == 1 || tensor.name == "position_embd.weight";
}

GgufType stored_type(const GgufTensor& tensor, GgufType type) {
  if (is_always_f32(tensor)) return GgufType::f32;
  return type == GgufType::q8_0 && tensor.shape.back() % kQ8Block != 0 ? GgufType::f16 : type;
}

int64_t rope_heads(const std::string& name, const ModelConfig& model) {
  if (name.find(".attn_q.") != std::string::npos) return model.heads();
  return name.find(".attn_k.") != std::string::npos ? model.kv_heads() : 0;
}

}  // namespace

std::vector<LlamaCppTensor> llama_cpp_tensors(const ModelConfig& model, Family family, GgufType type, bool adds_token) {
  std::vector<LlamaCppTensor> tensors;
  std::vector<Counterpart> parts = counterparts(model, family);
  for (Counterpart& part : parts) {
    GgufTensor stored{gguf_name(part.name), type, part.shape};
    if (part.is_transposed) std::reverse(stored.shape.begin(), stored.shape.end());
    const bool adds_row = adds_token && (stored.name == "token_embd.weight" || stored.name == "output.weight");
    if (adds_row) ++stored.shape[0];
    stored.type = stored_type(stored, type);
    const int64_t heads = rope_heads(stored.name, model);
    tensors.push_back({std::move(stored), std::move(part), heads, adds_row});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const LlamaCppTensor& a, const LlamaCppTensor& b) { return a.stored.name < b.stored.name; });
  return tensors;
}

at::Tensor llama_cpp_values(const LlamaCppTensor& tensor, const NamedTensors& weights) {
  const Counterpart& part = tensor.part;
  if (part.is_zero) return at::zeros(tensor.stored.shape);
  const auto own =
      std::find_if(weights.begin(), weights.end(), [&](const auto& weight) { return weight.first == part.row; });
  const at::Tensor rows = own->second.detach().narrow(0, part.begin, part.size);
  if (tensor.rope_heads > 0) {
    // (heads, 2, D / 2, ...) -> (heads, D / 2, 2, ...)
    const int64_t pairs = part.size / tensor.rope_heads / 2;
    return rows.unflatten(0, {tensor.rope_heads, 2, pairs}).transpose(1, 2).reshape(tensor.stored.shape);
  }
  if (!tensor.adds_row) return rows;
  return at::cat({rows, rows.mean(0, /*keepdim=*/true, at::kDouble).to(rows.scalar_type())});
}

std::string_view architecture_of(Family family) { return family == Family::gpt2 ? "gpt2" : "llama"; }

void add_architecture(GgufMetadata& metadata, const ModelConfig& model, Family family, int64_t tokens) {
  const std::string prefix = std::string(architecture_of(family)) + ".";
  const auto add = [&](const char* key, auto value) { metadata.add(prefix + key, value); };
  const auto add_count = [&](const char* key, int64_t value) { add(key, static_cast<uint32_t>(value)); };
  add_count("context_length", model.block_size);
  add_count("embedding_length", model.n_embd);
  add_count("block_count", model.n_layer);
  add_count("feed_forward_length", model.hidden());
  add_count("attention.head_count", model.heads());
  add_count("attention.head_count_kv", model.kv_heads());
  add_count("vocab_size", tokens);
  const auto epsilon = static_cast<float>(model.norm_eps);
  if (family == Family::gpt2) return add("attention.layer_norm_epsilon", epsilon);
  add("attention.layer_norm_rms_epsilon", epsilon);
  add_count("rope.dimension_count", model.head_dim());
  if (model.attention_width() != model.n_embd) {  // where they are left out, readers divide
    add_count("attention.key_length", model.head_dim());
    add_count("attention.value_length", model.head_dim());
  }
  add("rope.freq_base", static_cast<float>(model.rope_theta));
}

}  // namespace gpt::exchange
