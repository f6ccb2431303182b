// GPT-2: LayerNorm, GELU (tanh), learned positions, biases. Weights of linear layers are [in, out] in transformers. Biases that a model of
// ours lacks are zeros there.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "exchange/config_settings.h"
#include "gpt/exchange/families.h"

namespace gpt::exchange {
namespace {

using Role = layout::ParameterRole;

void set_gpt2_blocks(ModelConfig& model) {
  model.norm = Norm::layernorm, model.mlp = Mlp::gelu, model.position = Position::learned;
  model.qk_norm = QkNorm::none;
  set_plain_norms(model);
  model.attention_window = 0;
}

void set_gpt2_form(ModelConfig& model) {
  set_gpt2_blocks(model);
  model.n_kv_head = model.heads();
  model.n_head_dim = model.n_embd / model.heads();
}

// transformers' names are ours.
constexpr RoleNames kGpt2Names[] = {
    {Role::token_embedding, {"transformer.wte", "token_embd"}},
    {Role::position_embedding, {"transformer.wpe", "position_embd"}},
    {Role::attention_norm, {"transformer.h.{}.ln_1", "blk.{}.attn_norm"}},
    {Role::attention_in, {"transformer.h.{}.attn.c_attn", "blk.{}.attn_qkv"}},
    {Role::attention_out, {"transformer.h.{}.attn.c_proj", "blk.{}.attn_output"}},
    {Role::mlp_norm, {"transformer.h.{}.ln_2", "blk.{}.ffn_norm"}},
    {Role::mlp_in, {"transformer.h.{}.mlp.c_fc", "blk.{}.ffn_up"}},
    {Role::mlp_out, {"transformer.h.{}.mlp.c_proj", "blk.{}.ffn_down"}},
    {Role::final_norm, {"transformer.ln_f", "output_norm"}},
    {Role::head, {"lm_head", "output"}},
};

bool is_of_linear_layer(Role role) {
  return role == Role::attention_in || role == Role::attention_out || role == Role::mlp_in || role == Role::mlp_out;
}

std::vector<Counterpart> gpt2_counterparts(const ModelConfig& model) {
  const std::vector<layout::ParameterRow> own = layout::parameter_table(model);
  ModelConfig with_biases = model;
  with_biases.bias = true;
  std::vector<Counterpart> parts;
  for (const layout::ParameterRow& row : layout::parameter_table(with_biases)) {
    Counterpart part = counterpart(row, names_of(row, kGpt2Names), model);
    part.is_transposed = is_of_linear_layer(row.role) && !row.is_bias;
    if (part.is_transposed) std::reverse(part.shape.begin(), part.shape.end());
    part.is_zero =
        std::none_of(own.begin(), own.end(), [&](const layout::ParameterRow& o) { return o.name == row.name; });
    parts.push_back(std::move(part));
  }
  return parts;
}

nlohmann::ordered_json gpt2_json(const ModelConfig& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"n_embd", m.n_embd},
          {"n_layer", m.n_layer},
          {"n_head", m.heads()},
          {"n_inner", m.hidden()},
          {"n_positions", m.block_size},
          {"n_ctx", m.block_size},  // for readers of older files
          {"layer_norm_epsilon", m.norm_eps},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"reorder_and_upcast_attn", false},
          {"attn_pdrop", m.dropout},
          {"embd_pdrop", m.dropout},
          {"resid_pdrop", m.dropout}};
}

ModelConfig read_gpt2(const ConfigSettings& s) {
  s.must_be("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  s.must_be("scale_attn_weights", {true});
  s.must_be("scale_attn_by_inverse_layer_idx", {false});
  s.must_be("add_cross_attention", {false});
  ModelConfig m;
  set_gpt2_blocks(m);
  m.bias = true;
  m.n_embd = s.count("n_embd");
  m.n_layer = s.count("n_layer");
  m.n_head = s.count("n_head");
  m.n_hidden = s.count("n_inner", 4 * m.n_embd);
  m.block_size = s.count("n_positions", s.has("n_ctx") ? s.count("n_ctx") : 1024);
  m.norm_eps = s.number("layer_norm_epsilon", 1e-5);
  m.tie_weights = s.flag("tie_word_embeddings", true);
  return m;
}

std::vector<ArchitectureKey> gpt2_keys(const ModelConfig& m) {
  return {{"attention.layer_norm_epsilon", static_cast<float>(m.norm_eps)}};
}

constexpr Limit kGpt2LimitsOfMlx[] = {{"", [](const ModelConfig&) { return true; },
                                       "reads GPT-2's tensors under OpenAI's names alone, without transformer."}};
const Architecture kGpt2Architecture = {.name = "gpt2", .keys = gpt2_keys};
constexpr const Architecture* kGpt2Architectures[] = {&kGpt2Architecture};

}  // namespace

const Family kGpt2Family = {.name = "GPT-2",
                            .form = "layernorm, gelu, learned positions",
                            .model_type = "gpt2",
                            .architectures = kGpt2Architectures,
                            .set_form = set_gpt2_form,
                            .counterparts = gpt2_counterparts,
                            .config_json = gpt2_json,
                            .read_config = read_gpt2,
                            .mlx_lm_limits = kGpt2LimitsOfMlx};

}  // namespace gpt::exchange
