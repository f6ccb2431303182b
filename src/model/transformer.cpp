// The parts of a model out of its parameters and the forms of its layers.
#include "transformer.h"

#include "gpt/config/block_form.h"
#include "gpt/model/attention_form.h"

namespace gpt::transformer {
namespace {

// Of the weight with this role, or none.
ops::Adapter adapter_of(const Parameters& parameters, ParameterRole role, int64_t layer) {
  ops::Adapter adapter;
  const std::vector<ParameterRow>& rows = parameters.rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].adapter || rows[i].role != role || rows[i].layer != layer) continue;
    const AdapterPart& part = *rows[i].adapter;
    (part.is_a ? adapter.a : adapter.b) = parameters[i];
    adapter.scale = part.scale, adapter.outputs = part.outputs;
  }
  return adapter;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const Parameters& parameters, const LayerSpan& layers,
                         int64_t parts)
    : layers(layers), rotations(config.block_size, config.head_dim(), parameters.device()) {
  using Role = ParameterRole;
  using ops::DropoutKind;
  require_attention_on(config, parameters.device());
  const auto dropout_at = [&](DropoutKind kind, int64_t layer) {
    return ops::DropoutSpec{config.dropout, dropout_site(kind, layer)};
  };
  const auto linear = [&](Role role, int64_t layer) {
    return Linear{{parameters.weight(role, layer),
                   parameters.bias(role, layer),
                   {role, layer},
                   adapter_of(parameters, role, layer)}};
  };
  const auto norm = [&](const NormForm& form, Role role, int64_t layer) {
    return ops::Normalization{
        form.kind, form.eps, parameters.weight(role, layer), parameters.bias(role, layer), {role, layer}};
  };
  const auto attention = [&](const BlockForm& form, int64_t layer) {
    ops::AttentionSpec spec{.heads = config.heads() / parts,
                            .kv_heads = config.kv_heads() / parts,
                            .dropout = dropout_at(DropoutKind::attention, layer),
                            .layer = layer,
                            .window = form.window,
                            .blocks = {config.attention_block, config.top_blocks()}};
    if (form.head_norm)
      spec.norms = {parameters.weight(Role::query_norm, layer), parameters.weight(Role::key_norm, layer),
                    form.head_norm->eps};
    return spec;
  };
  const int64_t before = -1, after = config.n_layer;
  wte = parameters.weight(Role::token_embedding, before);
  wpe = parameters.weight(Role::position_embedding, before);
  dropout = dropout_at(DropoutKind::embedding, before);
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    const BlockForm form = block_form(config, layer);
    h.push_back({norm(form.norm, Role::attention_norm, layer),
                 {attention(form, layer), rotations.add(form.rotary), dropout_at(DropoutKind::attention_out, layer),
                  linear(Role::attention_in, layer), linear(Role::attention_out, layer)},
                 norm(form.norm, Role::mlp_norm, layer),
                 {form.mlp.kind, dropout_at(DropoutKind::mlp, layer), linear(Role::mlp_gate, layer),
                  linear(Role::mlp_in, layer), linear(Role::mlp_out, layer)}});
  }
  ln_f = norm(final_norm_form(config), Role::final_norm, after);
  lm_head = config.tie_weights ? wte : parameters.weight(Role::head, after);
}

}  // namespace gpt::transformer
