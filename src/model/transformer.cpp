// The parts of a model out of its parameters and the forms of its layers.
#include "transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "gpt/config/block_form.h"
#include "gpt/model/attention_form.h"

namespace gpt::model::transformer {
namespace {

// The adapter of the weight with this role; an empty one where it has none.
ops::Adapter adapter_of(const parameters::Parameters& parameters, layout::ParameterRole role, int64_t layer) {
  ops::Adapter adapter;
  const std::vector<layout::ParameterRow>& rows = parameters.rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].adapter || rows[i].role != role || rows[i].layer != layer) continue;
    const layout::AdapterPart& part = *rows[i].adapter;
    (part.is_a ? adapter.a : adapter.b) = parameters[i];
    adapter.scale = part.scale, adapter.outputs = part.outputs;
    adapter.dropout = {part.dropout, ops::adapter_dropout_site(static_cast<int64_t>(role), layer)};
  }
  return adapter;
}

ops::DropoutSpec dropout_at(const ModelConfig& config, ops::DropoutKind kind, int64_t layer) {
  return {config.dropout, dropout_site(kind, layer)};
}

// What this layer's attention is in each of so many parts of the model.
ops::AttentionSpec attention_spec(const ModelConfig& config, const parameters::Parameters& parameters,
                                  const BlockForm& form, int64_t layer, int64_t parts) {
  using Role = layout::ParameterRole;
  ops::AttentionSpec spec{.heads = config.heads() / parts,
                          .kv_heads = config.kv_heads() / parts,
                          .dropout = dropout_at(config, ops::DropoutKind::attention, layer),
                          .layer = layer,
                          .window = form.window,
                          .blocks = {config.attention_block, config.top_blocks()}};
  if (form.head_norm)
    spec.norms = {parameters.weight(Role::query_norm, layer), parameters.weight(Role::key_norm, layer),
                  form.head_norm->eps, form.head_norm->has_unit_offset ? 1.0 : 0.0};
  return spec;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const parameters::Parameters& parameters,
                         const layout::LayerSpan& layers, int64_t parts)
    : layers(layers), rotations(config.block_size, config.head_dim(), parameters.device()) {
  using Role = layout::ParameterRole;
  using ops::DropoutKind;
  require_attention_on(config, parameters.device());
  const auto linear = [&](Role role, int64_t layer) {
    return Linear{{parameters.weight(role, layer),
                   parameters.bias(role, layer),
                   {role, layer},
                   adapter_of(parameters, role, layer)}};
  };
  const auto norm = [&](const NormForm& form, Role role, int64_t layer) {
    return ops::Normalization{form.kind,
                              form.eps,
                              parameters.weight(role, layer),
                              parameters.bias(role, layer),
                              {role, layer},
                              form.has_unit_offset ? 1.0 : 0.0};
  };
  const auto norm_or_none = [&](const std::optional<NormForm>& form, Role role, int64_t layer) {
    return form ? norm(*form, role, layer) : ops::Normalization{};
  };
  const int64_t before = -1, after = config.n_layer;
  wte = parameters.weight(Role::token_embedding, before);
  wpe = parameters.weight(Role::position_embedding, before);
  dropout = dropout_at(config, DropoutKind::embedding, before);
  if (config.scaled_embedding) embedding_scale = std::sqrt(static_cast<double>(config.n_embd));
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const BlockForm form = block_form(config, layer);
    h.push_back(
        {norm_or_none(form.norm, Role::attention_norm, layer),
         {attention_spec(config, parameters, form, layer, parts), rotations.add(form.rotary), config.has_window(layer),
          dropout_at(config, DropoutKind::attention_out, layer), linear(Role::attention_in, layer),
          norm_or_none(form.heads_norm, Role::query_norm, layer), norm_or_none(form.heads_norm, Role::key_norm, layer),
          linear(Role::attention_out, layer), norm_or_none(form.out_norm, Role::attention_out_norm, layer)},
         norm_or_none(form.norm, Role::mlp_norm, layer),
         {form.mlp.kind, dropout_at(config, DropoutKind::mlp, layer), linear(Role::mlp_gate, layer),
          linear(Role::mlp_in, layer), linear(Role::mlp_out, layer),
          norm_or_none(form.out_norm, Role::mlp_out_norm, layer)}});
  }
  ln_f = norm(final_norm_form(config), Role::final_norm, after);
  lm_head = config.tie_weights ? wte : parameters.weight(Role::head, after);
}

ops::Normalized add_norm(const ops::Normalization& norm, const Stream& stream, const Pass& pass) {
  const ops::InPart part(ops::part::kNorm);
  return pass.ops->add_norm(norm, stream.x, stream.branch, stream.dropout);
}

// Any normalization draws the dropout as the next one would, to the bit.
at::Tensor joined(const Stream& stream, const ops::Normalization& any, const Pass& pass) {
  if (!stream.branch.defined()) return stream.x;
  if (stream.dropout.probability > 0) return add_norm(any, stream, pass).sum;
  const ops::InPart part(ops::part::kNorm);
  return stream.x + stream.branch;
}

at::Tensor Attention::queries_keys_values(const at::Tensor& x, const Pass& pass) const {
  at::Tensor qkv = c_attn(x, pass, pass.input_from(GradientCheckpointing::norm));
  if (!query_norm.weight.defined()) return qkv;
  const int64_t D = qkv.size(-1) / (spec.heads + 2 * spec.kv_heads), queries = spec.heads * D, keys = spec.kv_heads * D;
  const auto normed = [&](const ops::Normalization& norm, int64_t begin, int64_t size) {
    return add_norm(norm, {qkv.narrow(-1, begin, size), {}}, pass).normed;
  };
  return at::cat({normed(query_norm, 0, queries), normed(key_norm, queries, keys),
                  qkv.narrow(-1, queries + keys, keys)},
                 -1);
}

Stream Block::operator()(const Stream& in, const Pass& pass) const {
  const auto [x, first] = enter(ln_1, in, pass);
  return after_attention(x, attn(first, pass), pass);
}

Stream Block::after_attention(const at::Tensor& x, const at::Tensor& attended, const Pass& pass) const {
  const at::Tensor added = attn.c_proj(attended, pass);
  const auto [y, second] = enter(ln_2, {x, normed(attn.out_norm, added, pass), pass.dropout(attn.dropout_after)}, pass);
  return {y, normed(mlp.out_norm, mlp(second, pass), pass), pass.dropout(mlp.dropout_after())};
}

ops::Normalized Block::enter(const ops::Normalization& norm, const Stream& stream, const Pass& pass) const {
  if (norm.weight.defined()) return add_norm(norm, stream, pass);
  const at::Tensor sum = joined(stream, attn.out_norm, pass);
  return {sum, sum};
}

at::Tensor Block::normed(const ops::Normalization& norm, const at::Tensor& x, const Pass& pass) {
  return norm.weight.defined() ? add_norm(norm, {x, {}}, pass).normed : x;
}

at::Tensor Transformer::scaled(const at::Tensor& x) const {
  if (embedding_scale == 1) return x;
  return x * at::scalar_tensor(embedding_scale, x.scalar_type()).item<double>();
}

at::Tensor Transformer::leave(const Stream& stream, const Pass& pass) const {
  return has_end() ? add_norm(ln_f, stream, pass).normed : joined(stream, h.back().any_norm(), pass);
}

}  // namespace gpt::model::transformer
