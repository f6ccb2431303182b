#include "gpt/exchange/llama_cpp.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "gpt/ops/rotary.h"

namespace gpt::exchange {
namespace {

bool is_always_f32(const GgufTensor& tensor) {
  return tensor.shape.size() == 1 || tensor.name == "position_embd.weight";
}

GgufType stored_type(const GgufTensor& tensor, GgufType type) {
  if (is_always_f32(tensor)) return GgufType::f32;
  return type == GgufType::q8_0 && tensor.shape.back() % kQ8Block != 0 ? GgufType::f16 : type;
}

}  // namespace

std::vector<LlamaCppTensor> llama_cpp_tensors(const ModelConfig& model, const LlamaCppForm& form, GgufType type,
                                              bool adds_token) {
  std::vector<LlamaCppTensor> tensors;
  for (Counterpart& part : form.family.counterparts(model)) {
    GgufTensor stored{part.gguf_name, type, part.shape};
    if (part.is_transposed) std::reverse(stored.shape.begin(), stored.shape.end());
    const bool adds_row = adds_token && (stored.name == "token_embd.weight" || stored.name == "output.weight");
    if (adds_row) ++stored.shape[0];
    stored.type = stored_type(stored, type);
    tensors.push_back({std::move(stored), std::move(part), adds_row});
  }
  if (model.position == Position::rope && model.rope_scaling.kind == RopeScalingKind::llama3) {
    const at::Tensor divisors =
        ops::frequency_divisors(model.head_dim(), model.rope_theta, model.rope_scaling).to(at::kFloat);
    tensors.push_back({{"rope_freqs.weight", GgufType::f32, divisors.sizes().vec()}, {}, false, divisors});
  }
  if (form.architecture.constants) {
    for (const GgufConstant& constant : form.architecture.constants(model)) {
      const at::Tensor values = at::full({constant.size}, constant.value, at::kFloat);
      tensors.push_back({{constant.name, GgufType::f32, {constant.size}}, {}, false, values});
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const LlamaCppTensor& a, const LlamaCppTensor& b) { return a.stored.name < b.stored.name; });
  return tensors;
}

at::Tensor llama_cpp_values(const LlamaCppTensor& tensor, const parameters::NamedTensors& weights) {
  if (tensor.fixed.defined()) return tensor.fixed;
  const Counterpart& part = tensor.part;
  if (part.is_zero) return at::zeros(tensor.stored.shape);
  const auto own =
      std::find_if(weights.begin(), weights.end(), [&](const auto& weight) { return weight.first == part.row; });
  const at::Tensor rows = own->second.detach().narrow(0, part.begin, part.size);
  if (part.gguf_rope_heads > 0) return in_llama_cpp_order(rows, part);
  if (part.gguf_offset != 0) return rows + part.gguf_offset;
  if (!tensor.adds_row) return rows;
  return at::cat({rows, rows.mean(0, /*keepdim=*/true, at::kDouble).to(rows.scalar_type())});
}

at::Tensor in_llama_cpp_order(const at::Tensor& rows, const Counterpart& part) {
  const int64_t heads = part.gguf_rope_heads;
  if (heads == 0) return rows;
  // (heads, 2, D / 2, ...) -> (heads, D / 2, 2, ...)
  return rows.unflatten(0, {heads, 2, part.size / heads / 2}).transpose(1, 2).reshape(rows.sizes());
}

void add_architecture(GgufMetadata& metadata, const ModelConfig& model, const Architecture& architecture,
                      int64_t tokens) {
  const auto add = [&](const char* key, auto value) {
    metadata.add(fmt::format("{}.{}", architecture.name, key), value);
  };
  const auto add_count = [&](const char* key, int64_t value) { add(key, static_cast<uint32_t>(value)); };
  add_count("context_length", model.block_size);
  add_count("embedding_length", model.n_embd);
  add_count("block_count", model.n_layer);
  add_count("feed_forward_length", model.hidden());
  add_count("attention.head_count", model.heads());
  add_count("attention.head_count_kv", model.kv_heads());
  add_count("vocab_size", tokens);
  for (const ArchitectureKey& key : architecture.keys(model))
    std::visit([&](auto value) { add(key.name, value); }, key.value);
}

}  // namespace gpt::exchange
