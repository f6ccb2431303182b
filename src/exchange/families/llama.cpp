// Llama: RMSNorm, SwiGLU, RoPE by halves, grouped-query attention, no biases or all. Our fused query, key and value are three tensors in the
// other programs, and llama.cpp has the rows of queries and keys in another order.
#include "exchange/families/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpt/config/block_form.h"

namespace gpt::exchange {
namespace {

using Role = layout::ParameterRole;

constexpr std::pair<const char*, RopeScalingKind> kScalings[] = {{"linear", RopeScalingKind::linear},
                                                                 {"llama3", RopeScalingKind::llama3},
                                                                 {"yarn", RopeScalingKind::yarn}};

constexpr TensorNames kLlamaQueries = {"model.layers.{}.self_attn.q_proj", "blk.{}.attn_q"},
                      kLlamaKeys = {"model.layers.{}.self_attn.k_proj", "blk.{}.attn_k"},
                      kLlamaValues = {"model.layers.{}.self_attn.v_proj", "blk.{}.attn_v"};
constexpr RoleNames kLlamaNames[] = {
    {Role::token_embedding, {"model.embed_tokens", "token_embd"}},
    {Role::attention_norm, {"model.layers.{}.input_layernorm", "blk.{}.attn_norm"}},
    {Role::query_norm, {"model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm"}},
    {Role::key_norm, {"model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm"}},
    {Role::attention_out, {"model.layers.{}.self_attn.o_proj", "blk.{}.attn_output"}},
    {Role::mlp_norm, {"model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"}},
    {Role::mlp_gate, {"model.layers.{}.mlp.gate_proj", "blk.{}.ffn_gate"}},
    {Role::mlp_in, {"model.layers.{}.mlp.up_proj", "blk.{}.ffn_up"}},
    {Role::mlp_out, {"model.layers.{}.mlp.down_proj", "blk.{}.ffn_down"}},
    {Role::final_norm, {"model.norm", "output_norm"}},
    {Role::head, {"lm_head", "output"}},
};

nlohmann::ordered_json llama_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}};
  file.update(llama_settings(m));
  file.update(llama_biases(m));
  file["pretraining_tp"] = 1;
  return file;
}

// What YaRN multiplies queries and keys by where a file says nothing else.
double usual_magnitude(double factor) {
  return RopeScaling{.kind = RopeScalingKind::yarn, .factor = factor}.magnitude();
}

// What rotated queries and keys are multiplied by; 0: as usual.
double read_magnitude(const ConfigSettings& rope, double factor) {
  if (rope.has("attention_factor")) {
    const double magnitude = rope.number("attention_factor", 1);
    if (magnitude <= 0) rope.refuse("attention_factor", "it must be more than 0");
    return magnitude;
  }
  const double numerator = rope.number("mscale", 0), denominator = rope.number("mscale_all_dim", 0);
  if (numerator == 0 || denominator == 0) return 0;
  const double growth = usual_magnitude(factor) - 1;
  return (1 + numerator * growth) / (1 + denominator * growth);
}

}  // namespace

RopeScaling read_rope_scaling(const ConfigSettings& rope, int64_t positions) {
  RopeScaling scaling;
  const char* const type = rope.has("rope_type") ? "rope_type" : "type";  // its name in older files
  for (const auto& [name, kind] : kScalings)
    if (rope.is(type, name)) scaling.kind = kind;
  // mrope rotates by the place in an image, too, and text as default does.
  if (scaling.kind == RopeScalingKind::none && rope.has(type) && !rope.is(type, "default") && !rope.is(type, "mrope"))
    rope.refuse(type, "this program has default, linear, llama3 and yarn");
  if (scaling.kind == RopeScalingKind::none) return scaling;
  scaling.factor = rope.number("factor", 1);
  if (scaling.kind == RopeScalingKind::linear) return scaling;
  scaling.original_length = rope.count("original_max_position_embeddings", positions);
  if (scaling.kind == RopeScalingKind::llama3) {
    scaling.low = rope.number("low_freq_factor", 1), scaling.high = rope.number("high_freq_factor", 4);
    return scaling;
  }
  rope.must_be("truncate", {true});
  if (!rope.has("factor"))
    scaling.factor = static_cast<double>(positions) / static_cast<double>(scaling.original_length);
  scaling.beta_slow = rope.number("beta_slow", scaling.beta_slow);
  scaling.beta_fast = rope.number("beta_fast", scaling.beta_fast);
  scaling.attention_factor = read_magnitude(rope, scaling.factor);
  return scaling;
}

namespace {

// Version 5 of transformers keeps it within rope_parameters, version 4 beside an optional rope_scaling. Where a file has both, rope_scaling
// takes the place of all of rope_parameters, as in version 5.
void read_rope(const ConfigSettings& s, double default_theta, ModelConfig& model) {
  model.rope_theta = s.number("rope_theta", default_theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!s.has(key)) continue;
    const ConfigSettings rope = s.inside(key);
    if (rope.is_empty()) continue;
    rope.must_be("partial_rotary_factor", {1.0});
    model.rope_theta = rope.number("rope_theta", model.rope_theta);
    model.rope_scaling = read_rope_scaling(rope, model.block_size);
    return;
  }
}

}  // namespace

nlohmann::ordered_json rope_json(double theta, const RopeScaling& scaling) {
  nlohmann::ordered_json rope{{"rope_type", "default"}, {"rope_theta", theta}};
  for (const auto& [name, kind] : kScalings)
    if (kind == scaling.kind) rope["rope_type"] = name;
  if (scaling.kind != RopeScalingKind::none) rope["factor"] = scaling.factor;
  if (scaling.kind == RopeScalingKind::llama3)
    rope.update({{"low_freq_factor", scaling.low},
                 {"high_freq_factor", scaling.high},
                 {"original_max_position_embeddings", scaling.original_length}});
  if (scaling.kind == RopeScalingKind::yarn)
    rope.update({{"attention_factor", scaling.magnitude()},
                 {"beta_slow", scaling.beta_slow},
                 {"beta_fast", scaling.beta_fast},
                 {"original_max_position_embeddings", scaling.original_length}});
  const double usual = usual_magnitude(scaling.factor);
  if (scaling.kind == RopeScalingKind::yarn && scaling.magnitude() != usual && usual > 1)
    rope["mscale"] = (scaling.magnitude() - 1) / (usual - 1);  // the same for mlx-lm, which reads no attention_factor
  return rope;
}

namespace {

ModelConfig read_llama(const ConfigSettings& s) {
  ModelConfig m = read_llama_settings(s);
  read_llama_biases(s, m);
  return m;
}

}  // namespace

void set_llama_blocks(ModelConfig& model) {
  model.norm = Norm::rmsnorm, model.mlp = Mlp::swiglu, model.position = Position::rope;
  model.qkv_bias = false, model.qk_norm = QkNorm::none;
  model.rope_pattern = 'R';
  model.rope_window_theta = 0;
  model.attention_window = 0;
  set_plain_norms(model);
}

std::vector<Counterpart> llama_counterparts_in_halves(const ModelConfig& model, std::span<const RoleNames> own) {
  std::vector<Counterpart> parts = llama_counterparts(model, own);
  for (Counterpart& part : parts) part.gguf_rope_heads = 0;
  return parts;
}

std::vector<Counterpart> llama_counterparts(const ModelConfig& model) { return llama_counterparts(model, {}); }

std::vector<Counterpart> llama_counterparts_in_halves(const ModelConfig& model) {
  return llama_counterparts_in_halves(model, {});
}

std::vector<Counterpart> llama_counterparts(const ModelConfig& model, std::span<const RoleNames> own) {
  const int64_t queries = model.attention_width(), keys = model.kv_heads() * model.head_dim();
  std::vector<Counterpart> parts;
  const auto add = [&](Counterpart part, int64_t rope_heads, bool is_of_norm = false) {
    part.gguf_rope_heads = rope_heads;
    if (is_of_norm && model.norm_unit_offset) part.gguf_offset = 1;  // llama.cpp has factors
    parts.push_back(std::move(part));
  };
  for (const layout::ParameterRow& row : layout::parameter_table(model)) {
    if (row.role != Role::attention_in) {
      const bool is_own = std::any_of(own.begin(), own.end(), [&](const RoleNames& of) { return of.role == row.role; });
      add(counterpart(row, names_of(row, is_own ? own : kLlamaNames), model), 0, layout::is_norm(row.role));
      continue;
    }
    add(counterpart(row, kLlamaQueries, 0, queries), model.heads());
    add(counterpart(row, kLlamaKeys, queries, keys), model.kv_heads());
    add(counterpart(row, kLlamaValues, queries + keys, keys), 0);
  }
  return parts;
}

nlohmann::ordered_json llama_settings(const ModelConfig& m) {
  nlohmann::ordered_json settings{{"hidden_act", "silu"},
                                  {"hidden_size", m.n_embd},
                                  {"intermediate_size", m.hidden()},
                                  {"num_hidden_layers", m.n_layer},
                                  {"num_attention_heads", m.heads()},
                                  {"num_key_value_heads", m.kv_heads()},
                                  {"head_dim", m.head_dim()},
                                  {"max_position_embeddings", m.block_size},
                                  {"rms_norm_eps", m.norm_eps},
                                  {"rope_theta",
                                   m.rope_theta},  // transformers 4, with rope_scaling; the next is version 5
                                  {"rope_parameters", rope_json(m.rope_theta, m.rope_scaling)},
                                  {"attention_dropout", 0.0}};
  if (m.rope_scaling.kind != RopeScalingKind::none) settings["rope_scaling"] = settings["rope_parameters"];
  return settings;
}

ModelConfig read_llama_settings(const ConfigSettings& s, double default_theta,
                                std::initializer_list<nlohmann::json> activations) {
  s.must_be("hidden_act", activations);
  ModelConfig m = read_llama_sizes(s);
  read_rope(s, default_theta, m);
  m.tie_weights = s.flag("tie_word_embeddings", false);
  return m;
}

void read_llama_biases(const ConfigSettings& s, ModelConfig& model) {
  model.bias = s.flag("attention_bias", false);
  if (s.flag("mlp_bias", false) != model.bias)
    s.refuse("attention_bias", "mlp_bias differs, and model.bias stands for both");
}

nlohmann::ordered_json llama_biases(const ModelConfig& m) {
  const BlockForm form = block_form(m, 0);
  return {{"attention_bias", form.attention_in_bias}, {"mlp_bias", form.mlp.has_bias}};
}

ModelConfig read_llama_sizes(const ConfigSettings& s, const OtherwiseSizes& otherwise) {
  s.must_be("partial_rotary_factor", {1.0});
  ModelConfig m;
  set_llama_blocks(m);
  m.n_embd = s.count("hidden_size");
  m.n_layer = s.count("num_hidden_layers");
  const bool has_heads = s.has("num_attention_heads") || !otherwise.heads;
  m.n_head = has_heads ? s.count("num_attention_heads") : *otherwise.heads;
  m.n_kv_head = s.count("num_key_value_heads", otherwise.kv_heads.value_or(*m.n_head));
  m.n_hidden = s.count("intermediate_size");
  m.block_size = s.count("max_position_embeddings", otherwise.positions);
  m.norm_eps = s.number("rms_norm_eps", 1e-6);
  if (s.has("head_dim") && s.count("head_dim") * *m.n_head != m.n_embd) m.n_head_dim = s.count("head_dim");
  return m;
}

void require_full_layers(const ConfigSettings& s, const ModelConfig& model) {
  s.must_be("use_sliding_window", {false});
  if (s.has("layer_types")) (void)s.pattern("layer_types", model.n_layer, {{"full_attention", 'L'}});
}

nlohmann::ordered_json layer_windows_json(const ModelConfig& m) {
  nlohmann::ordered_json windows{{"sliding_window", nullptr}};
  if (m.attention_window > 0) windows["sliding_window"] = m.attention_window;
  for (int64_t layer = 0; layer < m.n_layer; ++layer)
    windows["layer_types"].push_back(m.has_window(layer) ? "sliding_attention" : "full_attention");
  return windows;
}

int64_t read_window(const ConfigSettings& s) {
  constexpr int64_t kOtherwise = 4096;
  return s.is_null("sliding_window") ? 0 : s.count("sliding_window", kOtherwise);
}

void read_layer_types(const ConfigSettings& s, ModelConfig& m) {
  if (s.has("layer_types"))
    m.window_pattern = s.pattern("layer_types", m.n_layer, {{"sliding_attention", 'S'}, {"full_attention", 'L'}});
}

std::vector<ArchitectureKey> llama_keys(const ModelConfig& m) {
  const auto head_dim = static_cast<uint32_t>(m.head_dim());
  std::vector<ArchitectureKey> keys = {{"attention.layer_norm_rms_epsilon", static_cast<float>(m.norm_eps)},
                                       {"rope.dimension_count", head_dim}};
  if (m.attention_width() != m.n_embd)  // where they are left out, readers divide
    keys.insert(keys.end(), {{"attention.key_length", head_dim}, {"attention.value_length", head_dim}});
  keys.push_back({"rope.freq_base", static_cast<float>(m.rope_theta)});
  const RopeScaling& scaling = m.rope_scaling;
  const auto factor = static_cast<float>(scaling.factor);
  if (scaling.kind == RopeScalingKind::linear)
    keys.insert(keys.end(), {{"rope.scaling.type", "linear"}, {"rope.scaling.factor", factor}});
  if (scaling.kind == RopeScalingKind::yarn) {
    keys.insert(keys.end(), {{"rope.scaling.type", "yarn"},
                             {"rope.scaling.factor", factor},
                             {"rope.scaling.original_context_length", static_cast<uint32_t>(scaling.original_length)},
                             {"rope.scaling.attn_factor",  // by which llama.cpp multiplies what follows from the factor
                              static_cast<float>(scaling.magnitude() / usual_magnitude(scaling.factor))},
                             {"rope.scaling.yarn_beta_slow", static_cast<float>(scaling.beta_slow)},
                             {"rope.scaling.yarn_beta_fast", static_cast<float>(scaling.beta_fast)}});
  }
  return keys;
}

nlohmann::ordered_json layer_ropes_json(const ModelConfig& m) {
  const bool has_own = m.rope_window_theta > 0;
  return {{"full_attention", rope_json(m.rope_theta, m.rope_scaling)},
          {"sliding_attention",
           has_own ? rope_json(m.rope_window_theta, {}) : rope_json(m.rope_theta, m.rope_scaling)}};
}

void read_layer_ropes(const ConfigSettings& s, double theta, double window_theta, ModelConfig& m) {
  RotaryForm full{theta, {}}, windowed{window_theta, {}};
  if (s.has("rope_parameters")) {
    const ConfigSettings ropes = s.inside("rope_parameters");
    for (const auto& [layers, form] : {std::pair("full_attention", &full), std::pair("sliding_attention", &windowed)}) {
      if (!ropes.has(layers)) continue;
      const ConfigSettings own = ropes.inside(layers);
      own.must_be("partial_rotary_factor", {1.0});
      *form = {own.number("rope_theta", form->theta), read_rope_scaling(own, m.block_size)};
    }
  }
  if (s.has("rope_scaling")) full.scaling = read_rope_scaling(s.inside("rope_scaling"), m.block_size);
  if (windowed.scaling.kind != RopeScalingKind::none && windowed != full)
    s.refuse("rope_parameters", "this program scales RoPE in all layers alike, or in those without windows alone");
  m.rope_theta = full.theta, m.rope_scaling = full.scaling;
  m.rope_window_theta = windowed == full ? 0 : windowed.theta;
}

bool is_every_model(const ModelConfig&) { return true; }
bool scales_as_llama3(const ModelConfig& m) { return m.rope_scaling.kind == RopeScalingKind::llama3; }
bool scales_as_yarn(const ModelConfig& m) { return m.rope_scaling.kind == RopeScalingKind::yarn; }
bool has_tied_head(const ModelConfig& m) { return m.tie_weights; }
bool has_head_of_its_own(const ModelConfig& m) { return !m.tie_weights; }

bool scales_windowed_layers(const ModelConfig& m) {
  return m.attention_window > 0 && m.rope_scaling.kind != RopeScalingKind::none && m.rope_window_theta == 0;
}

bool has_two_bases(const ModelConfig& m) {
  return m.attention_window > 0 && m.rope_window_theta > 0 && m.rope_window_theta != m.rope_theta;
}

ArchitectureKey window_key(const ModelConfig& m) {
  return {"attention.sliding_window",
          static_cast<uint32_t>(m.attention_window > 0 ? m.attention_window : m.block_size)};
}

ArchitectureKey window_pattern_key(const ModelConfig& m) {
  std::vector<int32_t> has_window;
  for (int64_t layer = 0; layer < m.n_layer; ++layer) has_window.push_back(m.has_window(layer) ? 1 : 0);
  return {"attention.sliding_window_pattern", std::move(has_window)};
}

namespace {

bool has_heads_of_their_own_width(const ModelConfig& m) { return m.attention_width() != m.n_embd; }

constexpr Limit kLlamaLimitsOfCTranslate2[] = {
    kNoYarn,
    {"`rope_scaling: llama3`", scales_as_llama3,
     "scales otherwise with model.rope_scaling llama3"},  // findings/ctranslate2_llama3.sh
    {"a `head_dim` of its own", has_heads_of_their_own_width, "has model.head_dim n_embd / n_head"}};
const Architecture kLlamaArchitecture = {.name = "llama", .keys = llama_keys};
constexpr const Architecture* kLlamaArchitectures[] = {&kLlamaArchitecture};

}  // namespace

const Family kLlamaFamily = {.name = "Llama",
                             .form = "rmsnorm, swiglu, rope",
                             .model_type = "llama",
                             .architectures = kLlamaArchitectures,
                             .set_form = set_llama_blocks,
                             .counterparts = llama_counterparts,
                             .config_json = llama_json,
                             .read_config = read_llama,
                             .ctranslate2_limits = kLlamaLimitsOfCTranslate2};

}  // namespace gpt::exchange
