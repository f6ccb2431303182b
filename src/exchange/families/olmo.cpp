// OLMo 2: Llama's blocks, which normalize what attention and the MLP give instead of what they take, and queries and keys over all heads
// together. OLMo 3 adds windows in three of four layers.
#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

using Role = layout::ParameterRole;

constexpr RoleNames kOlmoNames[] = {
    {Role::attention_out_norm, {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"}},
    {Role::mlp_out_norm, {"model.layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm"}},
};
constexpr const char* kWindowPattern = "SSSL";  // where the file does not say, as in transformers

void set_olmo2_form(ModelConfig& model) {
  set_llama_blocks(model);
  model.bias = false;
  model.norm_place = NormPlace::output, model.qk_norm = QkNorm::all;
}

void set_olmo3_form(ModelConfig& model) {
  const ModelConfig own = model;
  set_olmo2_form(model);
  model.attention_window = own.attention_window;
  model.rope_window_theta = own.rope_window_theta;
}

std::vector<Counterpart> olmo_counterparts(const ModelConfig& model) {
  return llama_counterparts_in_halves(model, kOlmoNames);
}

nlohmann::ordered_json olmo2_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"Olmo2ForCausalLM"}}, {"model_type", "olmo2"}};
  file.update(llama_settings(m));
  file["attention_bias"] = false;
  return file;
}

nlohmann::ordered_json olmo3_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"Olmo3ForCausalLM"}}, {"model_type", "olmo3"}};
  file.update(llama_settings(m));
  file.update(layer_windows_json(m));
  file["rope_parameters"] = layer_ropes_json(m);
  file["attention_bias"] = false;
  return file;
}

ModelConfig read_olmo_blocks(const ConfigSettings& s, ModelConfig m) {
  constexpr double kEps = 1e-5;
  s.must_be("attention_bias", {false});
  m.norm_eps = s.number("rms_norm_eps", kEps);
  m.norm_place = NormPlace::output, m.qk_norm = QkNorm::all;
  return m;
}

ModelConfig read_olmo2(const ConfigSettings& s) { return read_olmo_blocks(s, read_llama_settings(s)); }

// A base without rope_parameters is that of all layers, as in version 4 of transformers: findings/olmo3_rope_base.sh.
ModelConfig read_olmo3(const ConfigSettings& s) {
  constexpr double kTheta = 500'000;
  s.must_be("hidden_act", {"silu", "swish"});
  ModelConfig m = read_llama_sizes(s);
  m.tie_weights = s.flag("tie_word_embeddings", false);
  const double theta = s.number("rope_theta", kTheta);
  read_layer_ropes(s, theta, theta, m);
  m = read_olmo_blocks(s, std::move(m));
  m.attention_window = read_window(s), m.last_layer_full = false;
  m.window_pattern = kWindowPattern;
  read_layer_types(s, m);
  return m;
}

std::vector<ArchitectureKey> olmo3_keys(const ModelConfig& m) {
  std::vector<ArchitectureKey> keys = llama_keys(m);
  keys.push_back(window_key(m));
  keys.push_back(window_pattern_key(m));
  return keys;
}

bool has_one_kind_of_layer(const ModelConfig& m) {
  for (int64_t layer = 1; layer < m.n_layer; ++layer)
    if (m.has_window(layer) != m.has_window(0)) return false;
  return true;
}

constexpr Limit kNoTiedHead{"`tie_weights: true`", has_tied_head, "has model.tie_weights false"};
constexpr Limit kOlmo3LimitsOfMlx[] = {{"windows in all layers or in none", has_one_kind_of_layer,
                                        "has layers with windows and others"},
                                       kOneBase,
                                       kUnscaledWindows};
constexpr Limit kOlmo2Limits[] = {kNoTiedHead, kNoLlama3},
                kOlmo3Limits[] = {kNoTiedHead, kNoLlama3, kOneBase, kUnscaledWindows};
const Architecture kOlmo2Architecture = {.name = "olmo2", .keys = llama_keys, .limits = kOlmo2Limits},
                   kOlmo3Architecture = {.name = "olmo2", .keys = olmo3_keys, .limits = kOlmo3Limits};
constexpr const Architecture *kOlmo2Architectures[] = {&kOlmo2Architecture},
                             *kOlmo3Architectures[] = {&kOlmo3Architecture};

}  // namespace

const Family kOlmo2Family = {.name = "OLMo 2",
                             .form = "rmsnorm of outputs and of queries and keys, swiglu, rope",
                             .model_type = "olmo2",
                             .architectures = kOlmo2Architectures,
                             .set_form = set_olmo2_form,
                             .counterparts = olmo_counterparts,
                             .config_json = olmo2_json,
                             .read_config = read_olmo2,
                             .ctranslate2_limits = kNoSuchFamily};

const Family kOlmo3Family = {.name = "OLMo 3",
                             .form = "OLMo 2's with windows",
                             .model_type = "olmo3",
                             .architectures = kOlmo3Architectures,
                             .set_form = set_olmo3_form,
                             .counterparts = olmo_counterparts,
                             .config_json = olmo3_json,
                             .read_config = read_olmo3,
                             .ctranslate2_limits = kNoSuchFamily,
                             .mlx_lm_limits = kOlmo3LimitsOfMlx};

}  // namespace gpt::exchange
