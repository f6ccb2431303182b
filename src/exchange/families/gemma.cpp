// Gemma: Llama's blocks with GELU's gate, norms whose weights are added to 1, and an embedding that is multiplied by the square root of its
// width. Gemma 3 adds norms of queries and keys and of what attention and the MLP give, and windows in most layers, whose positions are
// rotated by a base of their own. Both programs have the weights of norms: transformers as they are here, llama.cpp with 1 added.
#include <fmt/format.h>

#include "exchange/families/llama.h"

namespace gpt::exchange {
namespace {

using Role = layout::ParameterRole;

constexpr const char* kGelu = "gelu_pytorch_tanh";
constexpr int64_t kHeadDim = 256;  // where the file does not say, as in transformers
constexpr double kTheta = 1'000'000, kWindowTheta = 10'000;
constexpr int64_t kPeriod = 6;  // the last of so many layers sees everything

constexpr RoleNames kGemma3Names[] = {
    {Role::attention_out_norm, {"model.layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"}},
    {Role::mlp_norm, {"model.layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm"}},
    {Role::mlp_out_norm, {"model.layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm"}},
};

void set_gemma_form(ModelConfig& model) {
  set_llama_blocks(model);
  model.bias = false, model.mlp = Mlp::geglu;
  model.norm_unit_offset = model.scaled_embedding = true;
  model.rope_scaling = {};
}

void set_gemma3_form(ModelConfig& model) {
  const ModelConfig own = model;
  set_gemma_form(model);
  model.qk_norm = QkNorm::heads, model.norm_place = NormPlace::both;
  model.attention_window = own.attention_window;
  model.rope_window_theta = own.rope_window_theta;
  model.rope_scaling = own.rope_scaling;
}

std::vector<Counterpart> gemma3_counterparts(const ModelConfig& model) {
  return llama_counterparts_in_halves(model, kGemma3Names);
}

nlohmann::ordered_json gemma_settings(const ModelConfig& m) {
  nlohmann::ordered_json settings = llama_settings(m);
  settings.update({{"hidden_act", kGelu}, {"hidden_activation", kGelu}, {"attention_bias", false}});
  return settings;
}

nlohmann::ordered_json gemma_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"GemmaForCausalLM"}}, {"model_type", "gemma"}};
  file.update(gemma_settings(m));
  return file;
}

// Every so-manyth layer sees everything, and no other one; 0: that is not so.
int64_t window_period(const ModelConfig& m) {
  int64_t period = 1;
  while (period <= m.n_layer && m.has_window(period - 1)) ++period;
  for (int64_t layer = 0; layer < m.n_layer; ++layer)
    if (m.has_window(layer) != ((layer + 1) % period != 0)) return 0;
  return period > m.n_layer ? 0 : period;
}

nlohmann::ordered_json gemma3_json(const ModelConfig& m) {
  nlohmann::ordered_json file{{"architectures", {"Gemma3ForCausalLM"}}, {"model_type", "gemma3_text"}};
  file.update(gemma_settings(m));
  file.update(layer_windows_json(m));
  if (m.attention_window == 0) file["sliding_window"] = m.block_size;  // transformers makes no mask without it
  if (const int64_t period = window_period(m); period > 0) file["sliding_window_pattern"] = period;  // for mlx-lm
  file["rope_parameters"] = layer_ropes_json(m);
  file.update(
      {{"rope_local_base_freq", m.rope_window_theta > 0 ? m.rope_window_theta : m.rope_theta},  // transformers 4
       {"query_pre_attn_scalar", m.head_dim()},
       {"attn_logit_softcapping", nullptr},
       {"final_logit_softcapping", nullptr},
       {"use_bidirectional_attention", false}});
  return file;
}

// Older files of Gemma say "gelu" and mean the tanh form.
ModelConfig read_gemma_settings(const ConfigSettings& s, const OtherwiseSizes& otherwise) {
  s.must_be(s.has("hidden_activation") ? "hidden_activation" : "hidden_act", {kGelu, "gelu"});
  s.must_be("attention_bias", {false});
  s.must_be("use_bidirectional_attention", {false});
  ModelConfig m = read_llama_sizes(s, otherwise);
  set_gemma_form(m);
  if (!s.has("head_dim")) m.n_head_dim = kHeadDim;
  m.tie_weights = s.flag("tie_word_embeddings", true);
  return m;
}

ModelConfig read_gemma(const ConfigSettings& s) {
  ModelConfig m = read_gemma_settings(s, {.positions = 8192});
  m.rope_theta = s.number("rope_theta", m.rope_theta);
  if (s.has("rope_scaling")) s.refuse("rope_scaling", "this program has Gemma only without it");
  if (!s.has("rope_parameters")) return m;
  const ConfigSettings rope = s.inside("rope_parameters");
  rope.must_be("rope_type", {"default"});
  m.rope_theta = rope.number("rope_theta", m.rope_theta);
  return m;
}

ModelConfig read_gemma3(const ConfigSettings& s) {
  constexpr int64_t kMostLayers = 1024;
  s.must_be_absent("attn_logit_softcapping");
  s.must_be_absent("final_logit_softcapping");
  ModelConfig m = read_gemma_settings(s, {.positions = 131'072, .heads = 8, .kv_heads = 4});
  m.vocab_size = 262'208;
  if (s.count("query_pre_attn_scalar", kHeadDim) != m.head_dim())
    s.refuse("query_pre_attn_scalar", fmt::format("this program scales attention by head_dim {}", m.head_dim()));
  m.qk_norm = QkNorm::heads, m.norm_place = NormPlace::both;
  m.attention_window = read_window(s), m.last_layer_full = false;
  const int64_t period = s.count("sliding_window_pattern", kPeriod);
  if (period > kMostLayers) s.refuse("sliding_window_pattern", "no model has so many layers");
  m.window_pattern = fmt::format("{:S>{}}", 'L', period);
  read_layer_types(s, m);
  read_layer_ropes(s, s.number("rope_theta", kTheta), s.number("rope_local_base_freq", kWindowTheta), m);
  return m;
}

std::vector<ArchitectureKey> gemma3_keys(const ModelConfig& m) {
  std::vector<ArchitectureKey> keys = llama_keys(m);
  // Without any window its graph is another one, which caps logits.
  keys.push_back(window_key(m));
  keys.push_back(window_pattern_key(m));
  keys.push_back(
      {"rope.freq_base_swa", static_cast<float>(m.rope_window_theta > 0 ? m.rope_window_theta : m.rope_theta)});
  return keys;
}

bool scales_at_all(const ModelConfig& m) { return m.rope_scaling.kind != RopeScalingKind::none; }

bool has_no_period(const ModelConfig& m) { return window_period(m) == 0; }

bool has_other_bases(const ModelConfig& m) {
  return m.rope_theta != kTheta || (m.attention_window > 0 && m.rope_window_theta != kWindowTheta);
}

constexpr Limit
    kGemmaLimits[] = {kTiedHead},
    kGemma3Limits[] = {kNoLlama3, kNoYarn, kUnscaledWindows},
    kGemma3LimitsOfMlx[] = {{"a `window_pattern` without a period", has_no_period,
                             "has a layer without a window after every so many with one"},
                            kUnscaledWindows},
    kGemma3LimitsOfCTranslate2[] = {
        {"`rope_scaling`", scales_at_all, "has model.rope_scaling none"},
        {"other bases than 1,000,000 and 10,000", has_other_bases,
         "has model.rope_theta 1000000 and model.rope_window_theta 10000"}};  // findings/gemma3_rope_bases.sh
const Architecture kGemmaArchitecture = {.name = "gemma", .keys = llama_keys, .limits = kGemmaLimits},
                   kGemma3Architecture = {.name = "gemma3", .keys = gemma3_keys, .limits = kGemma3Limits};
constexpr const Architecture *kGemmaArchitectures[] = {&kGemmaArchitecture},
                             *kGemma3Architectures[] = {&kGemma3Architecture};

}  // namespace

const Family kGemmaFamily = {.name = "Gemma",
                             .form = "rmsnorm of unit offset, geglu, rope, scaled embedding",
                             .model_type = "gemma",
                             .architectures = kGemmaArchitectures,
                             .set_form = set_gemma_form,
                             .counterparts = llama_counterparts_in_halves,
                             .config_json = gemma_json,
                             .read_config = read_gemma,
                             .mlx_lm_limits = kGemmaLimits};

const Family kGemma3Family = {.name = "Gemma 3",
                              .form = "Gemma's with norms on both sides and of queries and keys, and windows",
                              .model_type = "gemma3_text",
                              .architectures = kGemma3Architectures,
                              .set_form = set_gemma3_form,
                              .counterparts = gemma3_counterparts,
                              .config_json = gemma3_json,
                              .read_config = read_gemma3,
                              .ctranslate2_limits = kGemma3LimitsOfCTranslate2,
                              .mlx_lm_limits = kGemma3LimitsOfMlx};

}  // namespace gpt::exchange
