// The families of models beside GPT-2 and Llama: what of their files is read, and what leaves again. The members of the files are those of
// models that are published, but for their sizes.
#include "gpt/exchange/families.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "exchange/family_files.h"
#include "gpt/config/block_form.h"
#include "gpt/exchange/hugging_face.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;
using namespace family_files;

// With every parameter that the family can have.
ModelConfig whole_model(const Family& family) {
  ModelConfig model;
  model.n_layer = 2, model.n_embd = 16, model.n_head = 4, model.n_kv_head = 2, model.n_hidden = 24,
  model.block_size = 8;
  model.vocab_size = 64, model.bias = true, model.tie_weights = false;
  model.attention_window = 4, model.window_pattern = "SL", model.rope_pattern = "RN";
  model.last_layer_full = false;
  family.set_form(model);
  return model;
}

TEST(Families, AreFoundByTheirOwnForm) {
  for (const Family* const family : families()) {
    const ModelConfig model = whole_model(*family);
    EXPECT_EQ(&family_of(model, "here", "a program"), family) << family->name;
    EXPECT_EQ(misfits(model), "");
  }
}

TEST(Families, HaveEveryRowOfAParameterOnceUnderNamesOfItsOwn) {
  for (const Family* const family : families()) {
    const ModelConfig model = whole_model(*family);
    std::map<std::string, int64_t> rows;
    std::set<std::string> names, gguf_names;
    for (const Counterpart& part : family->counterparts(model)) {
      EXPECT_TRUE(names.insert(part.name).second) << part.name;
      EXPECT_TRUE(gguf_names.insert(part.gguf_name).second) << part.gguf_name;
      EXPECT_EQ(part.begin, rows[part.row]) << part.name << " begins where another one ends";
      EXPECT_TRUE(part.gguf_rope_heads == 0 || part.size == part.gguf_rope_heads * model.head_dim()) << part.name;
      rows[part.row] += part.size;
    }
    for (const layout::ParameterRow& row : layout::parameter_table(model))
      EXPECT_EQ(rows[row.name], row.shape[0]) << row.name;
  }
}

std::vector<int64_t> windows(const ModelConfig& model) {
  std::vector<int64_t> found;
  for (int64_t layer = 0; layer < model.n_layer; ++layer) found.push_back(model.window(layer));
  return found;
}

// The value of a key with a number for each layer.
std::vector<int32_t> layers_of(const std::vector<ArchitectureKey>& keys, std::string_view name) {
  for (const ArchitectureKey& key : keys)
    if (key.name == name) return std::get<std::vector<int32_t>>(key.value);
  return {};
}

std::string_view architecture_of(const ModelConfig& model) { return llama_cpp_form(model, "here").architecture.name; }

// The members are those of Qwen2.5-0.5B's file.
TEST(Families, Qwen2HasBiasesOfQueriesKeysAndValuesAlone) {
  const json file = json::parse(
      R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
          "hidden_act": "silu", "hidden_size": 16, "initializer_range": 0.02, "intermediate_size": 24,
          "max_position_embeddings": 32768, "max_window_layers": 1, "model_type": "qwen2", "num_attention_heads": 4,
          "num_hidden_layers": 1, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
          "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
          "use_mrope": false, "use_sliding_window": false, "vocab_size": 10})");
  const ForeignForm form = read_config_json(file.dump(), "here");
  EXPECT_EQ(form.family, &kQwen2Family);
  const ModelConfig& model = form.model;
  EXPECT_TRUE(model.qkv_bias && !model.bias && model.tie_weights);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(&family_of(model, "here", "transformers"), &kQwen2Family);
  std::set<std::string> biases;
  for (const Counterpart& part : counterparts(model, kQwen2Family)) {
    if (part.name.ends_with(".bias")) biases.insert(part.name);
    EXPECT_EQ(part.gguf_rope_heads, 0) << "llama.cpp rotates halves here";
  }
  EXPECT_EQ(biases,
            (std::set<std::string>{"model.layers.0.self_attn.k_proj.bias", "model.layers.0.self_attn.q_proj.bias",
                                   "model.layers.0.self_attn.v_proj.bias"}));
  json written = json::parse(config_json(model, kQwen2Family, "float32", {}).dump());
  EXPECT_EQ(written["model_type"], "qwen2");
  EXPECT_EQ(written["use_sliding_window"], false);
  EXPECT_EQ(read_config_json(written.dump(), "here").family, &kQwen2Family);
  written["use_sliding_window"] = true;
  EXPECT_ERROR(read_config_json(written.dump(), "here"), ExitCode::checkpoint, "use_sliding_window is true");
}

// The members are those of Qwen3-0.6B's file.
TEST(Families, Qwen3NormalizesQueriesAndKeys) {
  const json file = with({{"architectures", {"Qwen3ForCausalLM"}},
                          {"model_type", "qwen3"},
                          {"attention_bias", false},
                          {"bos_token_id", 1},
                          {"eos_token_id", 2},
                          {"head_dim", 8},
                          {"max_window_layers", 28},
                          {"rope_scaling", nullptr},
                          {"rope_theta", 1000000},
                          {"sliding_window", nullptr},
                          {"tie_word_embeddings", true},
                          {"use_sliding_window", false}});
  const ModelConfig model = read(file, kQwen3Family);
  EXPECT_TRUE(model.qk_norm == QkNorm::heads && model.tie_weights && !model.bias && !model.qkv_bias);
  EXPECT_EQ(model.head_dim(), 8);
  EXPECT_EQ(model.rope_theta, 1e6);
  std::set<std::string> norms;
  for (const Counterpart& part : counterparts(model, kQwen3Family)) {
    if (part.name.find("layers.3.self_attn.") != std::string::npos && part.name.ends_with("_norm.weight")) {
      norms.insert(part.name + " " + part.gguf_name);
      EXPECT_EQ(part.shape, std::vector<int64_t>{8});
    }
    EXPECT_EQ(part.gguf_rope_heads, 0) << "llama.cpp rotates halves here";
  }
  EXPECT_EQ(norms, (std::set<std::string>{"model.layers.3.self_attn.k_norm.weight blk.3.attn_k_norm.weight",
                                          "model.layers.3.self_attn.q_norm.weight blk.3.attn_q_norm.weight"}));
  EXPECT_TRUE(again(model, kQwen3Family).qk_norm == QkNorm::heads);
  EXPECT_EQ(export_limits(model), "");
  json without = file;
  without.erase("head_dim");
  EXPECT_EQ(read(without, kQwen3Family).head_dim(), 128) << "as in transformers";
  json changed = file;
  changed["attention_bias"] = true;
  expect_refused(changed, "attention_bias is true");
  changed = file, changed["layer_types"] = {"full_attention", "full_attention", "sliding_attention", "full_attention"};
  expect_refused(changed, "layer_types is [");
}

// The members are those of Mistral-7B-v0.1's file.
TEST(Families, MistralHasAWindowInAllLayers) {
  const json file = with({{"architectures", {"MistralForCausalLM"}},
                          {"model_type", "mistral"},
                          {"rope_theta", 10000.0},
                          {"sliding_window", 16},
                          {"tie_word_embeddings", false}});
  const ModelConfig model = read(file, kMistralFamily);
  EXPECT_EQ(windows(model), (std::vector<int64_t>(4, 16)));
  EXPECT_EQ(windows(again(model, kMistralFamily)), windows(model));
  EXPECT_EQ(export_limits(model), "");
  const std::vector<GgufConstant> sinks = kMistralFamily.architectures[0]->constants(model);
  ASSERT_EQ(sinks.size(), 4u) << "one for each layer, which Mistral has not";
  EXPECT_EQ(sinks[3].name, "blk.3.attn_sinks.weight");
  EXPECT_EQ(sinks[3].size, 4);
  json changed = file;
  changed["sliding_window"] = nullptr;  // as later versions have it
  EXPECT_EQ(windows(read(changed, kMistralFamily)), (std::vector<int64_t>(4, 0)));
  EXPECT_EQ(&family_of(read(changed, kMistralFamily), "here", "transformers"), &kLlamaFamily);
  changed.erase("sliding_window"), changed["max_position_embeddings"] = 8192;
  EXPECT_EQ(windows(read(changed, kMistralFamily)), (std::vector<int64_t>(4, 4096))) << "as in transformers";
}

TEST(Families, MinistralHasAWindowInSomeLayers) {
  ModelConfig model;  // a form of our own
  model.n_layer = 6, model.block_size = 64, model.vocab_size = 10, model.attention_window = 16;
  const std::vector<int64_t> own{16, 16, 16, 0, 16, 0};
  EXPECT_EQ(windows(model), own);
  EXPECT_EQ(windows(again(model, kMinistralFamily)), own);
  const std::vector<ArchitectureKey> keys = kMinistralFamily.architectures[0]->keys(model);
  EXPECT_EQ(layers_of(keys, "attention.sliding_window_pattern"), (std::vector<int32_t>{1, 1, 1, 0, 1, 0}));
  EXPECT_EQ(layers_of(keys, "attention.rope_pattern"), (std::vector<int32_t>(6, 1)));
  json file = json::parse(config_json(model, kMinistralFamily, "float32", {}).dump());
  file["layer_types"][1] = "chunked_attention";
  expect_refused(file, "layer_types is [");
  file["layer_types"] = {"full_attention"};
  expect_refused(file, "layer_types is [\"full_attention\"]; a list with a value for each of 6 layers is needed");
}

// The members are those of SmolLM3-3B's file.
TEST(Families, SmolLM3DoesNotRotateInSomeLayers) {
  const json file = with({{"architectures", {"SmolLM3ForCausalLM"}},
                          {"model_type", "smollm3"},
                          {"attention_bias", false},
                          {"layer_types", std::vector<std::string>(4, "full_attention")},
                          {"max_window_layers", 28},
                          {"mlp_bias", false},
                          {"no_rope_layer_interval", 4},
                          {"no_rope_layers", {1, 1, 1, 0}},
                          {"rope_scaling", nullptr},
                          {"rope_theta", 5000000.0},
                          {"sliding_window", nullptr},
                          {"use_sliding_window", false}});
  ModelConfig model = read(file, kSmolLM3Family);
  EXPECT_EQ(model.rope_pattern, "RRRN");
  EXPECT_TRUE(model.tie_weights) << "where it does not say so";
  EXPECT_FALSE(block_form(model, 3).rotary);
  EXPECT_EQ(again(model, kSmolLM3Family).rope_pattern, "RRRN");
  EXPECT_EQ(architecture_of(model), "smollm3");
  EXPECT_EQ(export_limits(model), "");
  json changed = file;
  changed.erase("no_rope_layers"), changed.erase("rope_theta"), changed["no_rope_layer_interval"] = 2;
  model = read(changed, kSmolLM3Family);
  EXPECT_EQ(model.rope_pattern, "RN");
  EXPECT_EQ(model.rope_theta, 2e6) << "as in transformers";
  EXPECT_EQ(export_limits(model), "");
  EXPECT_EQ(architecture_of(model), "granite_swa") << "which has any layers so";
  EXPECT_EQ(layers_of(llama_cpp_form(model, "here").architecture.keys(model), "attention.rope_pattern"),
            (std::vector<int32_t>{1, 0, 1, 0}));
  changed["use_sliding_window"] = true, changed["sliding_window"] = 16, changed.erase("layer_types");
  model = read(changed, kSmolLM3Family);
  EXPECT_EQ(windows(model), (std::vector<int64_t>{0, 16, 0, 16})) << "in layers that do not rotate, as in transformers";
  EXPECT_EQ(windows(again(model, kSmolLM3Family)), windows(model));
  EXPECT_EQ(architecture_of(model), "granite_swa") << "smollm3 has no windows";
  changed["use_sliding_window"] = false, changed["no_rope_layer_interval"] = 1'000'000'000;
  expect_refused(changed, "no_rope_layer_interval is 1000000000; no model has so many layers");
  changed["no_rope_layers"] = {1, 2, 1, 1};
  expect_refused(changed, "no_rope_layers is [1,2,1,1]; this program does not have 2 in such a model");
}

// Transformers' name and llama.cpp's of each norm of layer 3.
std::map<std::string, std::string> norms_of_layer_3(const ModelConfig& model, const Family& family) {
  std::map<std::string, std::string> norms;
  for (const Counterpart& part : counterparts(model, family))
    if (part.name.find("layers.3.") != std::string::npos && part.name.find("norm") != std::string::npos)
      norms[part.name.substr(part.name.find("3.") + 2)] = part.gguf_name.substr(part.gguf_name.find("3.") + 2);
  return norms;
}

// The members are those of gemma-2b's file.
TEST(Families, GemmaScalesItsEmbeddingAndAddsOneToItsNorms) {
  const json file = with({{"architectures", {"GemmaForCausalLM"}},
                          {"model_type", "gemma"},
                          {"attention_bias", false},
                          {"bos_token_id", 2},
                          {"eos_token_id", 1},
                          {"head_dim", 8},
                          {"hidden_act", "gelu"},
                          {"hidden_activation", nullptr},
                          {"rope_scaling", nullptr},
                          {"rope_theta", 10000.0}});
  const ModelConfig model = read(file, kGemmaFamily);
  EXPECT_TRUE(model.scaled_embedding && model.norm_unit_offset && model.tie_weights && !model.bias);
  EXPECT_TRUE(model.mlp == Mlp::geglu && model.norm_place == NormPlace::input && model.qk_norm == QkNorm::none);
  EXPECT_EQ(model.head_dim(), 8);
  for (const Counterpart& part : counterparts(model, kGemmaFamily)) {
    EXPECT_EQ(part.gguf_offset, part.name.find("norm") == std::string::npos ? 0 : 1) << part.name;
    EXPECT_EQ(part.gguf_rope_heads, 0) << "llama.cpp rotates halves here";
  }
  const ModelConfig written = again(model, kGemmaFamily);
  EXPECT_TRUE(written.scaled_embedding && written.norm_unit_offset && written.mlp == Mlp::geglu);
  EXPECT_EQ(export_limits(model), "");
  ModelConfig untied = model;
  untied.tie_weights = false;
  EXPECT_EQ(export_limits(untied),
            "gpt-export will write this model for transformers, but not for llama.cpp: its architecture gemma has "
            "model.tie_weights true");
  json changed = file;
  changed.erase("head_dim");
  EXPECT_EQ(read(changed, kGemmaFamily).head_dim(), 256) << "as in transformers";
  changed["hidden_activation"] = "silu";
  expect_refused(changed, "hidden_activation is \"silu\"");
  changed = file, changed["use_bidirectional_attention"] = true;
  expect_refused(changed, "use_bidirectional_attention is true");
}

// The members are those of gemma-3-270m's file, as version 4 of transformers wrote it.
const json kGemma3 =
    with({{"architectures", {"Gemma3ForCausalLM"}},
          {"model_type", "gemma3_text"},
          {"_sliding_window_pattern", 6},
          {"attention_bias", false},
          {"attn_logit_softcapping", nullptr},
          {"bos_token_id", 2},
          {"eos_token_id", 1},
          {"final_logit_softcapping", nullptr},
          {"head_dim", 8},
          {"hidden_act", nullptr},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"layer_types", {"sliding_attention", "sliding_attention", "full_attention", "full_attention"}},
          {"query_pre_attn_scalar", 8},
          {"rope_local_base_freq", 10000.0},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000.0},
          {"sliding_window", 16},
          {"use_bidirectional_attention", false}});

TEST(Families, Gemma3HasFourNormsAndWindowsWithABaseOfTheirOwn) {
  const ModelConfig model = read(kGemma3, kGemma3Family);
  EXPECT_TRUE(model.norm_place == NormPlace::both && model.qk_norm == QkNorm::heads && model.norm_unit_offset);
  EXPECT_EQ(windows(model), (std::vector<int64_t>{16, 16, 0, 0}));
  EXPECT_TRUE(block_form(model, 0).rotary == (RotaryForm{1e4, {}}));
  EXPECT_TRUE(block_form(model, 2).rotary == (RotaryForm{1e6, {}}));
  EXPECT_EQ(norms_of_layer_3(model, kGemma3Family),
            (std::map<std::string, std::string>{{"input_layernorm.weight", "attn_norm.weight"},
                                                {"post_attention_layernorm.weight", "post_attention_norm.weight"},
                                                {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
                                                {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
                                                {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                                                {"self_attn.q_norm.weight", "attn_q_norm.weight"}}));
  const ModelConfig written = again(model, kGemma3Family);
  EXPECT_EQ(windows(written), windows(model));
  EXPECT_EQ(written.rope_window_theta, 1e4);
  EXPECT_EQ(export_limits(model), "");
  ModelConfig scaled = model;
  scaled.rope_scaling.kind = RopeScalingKind::llama3;
  EXPECT_EQ(export_limits(scaled),
            "gpt-export will write this model for transformers, but not for llama.cpp: its architecture gemma3 has "
            "no llama3 in model.rope_scaling");
  scaled.rope_scaling.kind = RopeScalingKind::yarn;
  EXPECT_EQ(export_limits(scaled),
            "gpt-export will write this model for transformers, but not for llama.cpp: its architecture gemma3 has "
            "no yarn in model.rope_scaling");
  scaled.rope_scaling.kind = RopeScalingKind::linear;
  EXPECT_EQ(export_limits(scaled), "");
  scaled.rope_window_theta = 0;
  EXPECT_EQ(
      export_limits(scaled),
      "gpt-export will write this model for transformers, but not for llama.cpp: its architecture gemma3 scales RoPE "
      "in layers without windows alone (model.rope_window_theta)");
  ModelConfig full = model;
  full.attention_window = 0;
  EXPECT_EQ(config_json(full, kGemma3Family, "float32", {})["sliding_window"], 64) << "which transformers needs";
  EXPECT_EQ(windows(again(full, kGemma3Family)), (std::vector<int64_t>(4, 0)));
  ModelConfig shorter = model;  // as a run with shorter sequences has it
  shorter.block_size = 8;
  const ModelConfig long_again = again(shorter, kGemma3Family);
  EXPECT_EQ(long_again.attention_window, 16);
  EXPECT_TRUE(block_form(long_again, 0).rotary == (RotaryForm{1e4, {}}));
  EXPECT_TRUE(block_form(long_again, 2).rotary == (RotaryForm{1e6, {}}));
}

// As version 5 writes it, and where keys are missing.
TEST(Families, Gemma3IsReadAsBothVersionsOfTransformersReadIt) {
  json file = kGemma3;
  for (const char* key : {"layer_types", "rope_theta", "rope_local_base_freq"}) file.erase(key);
  file["num_hidden_layers"] = 7;
  ModelConfig model = read(file, kGemma3Family);
  EXPECT_EQ(windows(model), (std::vector<int64_t>{16, 16, 16, 16, 16, 0, 16})) << "every sixth layer is full";
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.rope_window_theta, 1e4);
  file["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
                             {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5e3}}}};
  model = read(file, kGemma3Family);
  EXPECT_EQ(model.rope_theta, 2e6);
  EXPECT_EQ(model.rope_window_theta, 5e3);
  EXPECT_TRUE(block_form(model, 5).rotary->scaling == (RopeScaling{.kind = RopeScalingKind::linear, .factor = 8}));
  EXPECT_TRUE(block_form(model, 0).rotary->scaling == RopeScaling{});
  const ModelConfig written = again(model, kGemma3Family);
  EXPECT_TRUE(written.rope_scaling == model.rope_scaling && written.rope_window_theta == model.rope_window_theta);
  json changed = kGemma3;
  changed["query_pre_attn_scalar"] = 168;
  expect_refused(changed, "query_pre_attn_scalar is 168; this program scales attention by head_dim 8");
  changed = kGemma3, changed["final_logit_softcapping"] = 30.0;
  expect_refused(changed, "final_logit_softcapping is 30.0");
  changed = kGemma3, changed["rope_parameters"] = {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}};
  expect_refused(changed, "rope_parameters is {");
}

// The members are those of OLMo-2-0425-1B's file.
TEST(Families, Olmo2NormalizesWhatComesOut) {
  const json file = with({{"architectures", {"Olmo2ForCausalLM"}},
                          {"model_type", "olmo2"},
                          {"attention_bias", false},
                          {"attention_dropout", 0.0},
                          {"eos_token_id", 1},
                          {"pad_token_id", 2},
                          {"rope_scaling", nullptr},
                          {"rope_theta", 500000},
                          {"tie_word_embeddings", false}});
  const ModelConfig model = read(file, kOlmo2Family);
  EXPECT_TRUE(model.norm_place == NormPlace::output && model.qk_norm == QkNorm::all && !model.tie_weights);
  EXPECT_EQ(norms_of_layer_3(model, kOlmo2Family),
            (std::map<std::string, std::string>{{"post_attention_layernorm.weight", "post_attention_norm.weight"},
                                                {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
                                                {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                                                {"self_attn.q_norm.weight", "attn_q_norm.weight"}}));
  for (const Counterpart& part : counterparts(model, kOlmo2Family)) {
    if (part.name.ends_with("q_norm.weight")) { EXPECT_EQ(part.shape, std::vector<int64_t>{16}) << "of all heads"; }
    if (part.name.ends_with("k_norm.weight")) { EXPECT_EQ(part.shape, std::vector<int64_t>{8}); }
  }
  EXPECT_TRUE(again(model, kOlmo2Family).norm_place == NormPlace::output);
  json changed = file;
  changed.erase("rms_norm_eps");
  EXPECT_EQ(read(changed, kOlmo2Family).norm_eps, 1e-5) << "as in transformers";
  changed["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
  EXPECT_EQ(again(read(changed, kOlmo2Family), kOlmo2Family).rope_scaling.factor, 2);
}

// The members are those of Olmo-3-1025-7B's file.
TEST(Families, Olmo3HasWindowsInThreeOfFourLayers) {
  const json file = with({{"architectures", {"Olmo3ForCausalLM"}},
                          {"model_type", "olmo3"},
                          {"attention_bias", false},
                          {"rope_scaling",
                           {{"attention_factor", 1.2079441541679836},
                            {"beta_fast", 32},
                            {"beta_slow", 1},
                            {"factor", 8.0},
                            {"original_max_position_embeddings", 8192},
                            {"rope_type", "yarn"}}},
                          {"rope_theta", 500000},
                          {"sliding_window", 16},
                          {"tie_word_embeddings", false}});
  const ModelConfig model = read(file, kOlmo3Family);
  EXPECT_EQ(windows(model), (std::vector<int64_t>{16, 16, 16, 0}));
  EXPECT_TRUE(block_form(model, 0).rotary == (RotaryForm{5e5, {}})) << "windowed layers are not scaled";
  const RotaryForm full = block_form(model, 3).rotary.value();
  EXPECT_TRUE(full.theta == 5e5 && full.scaling.kind == RopeScalingKind::yarn && full.scaling.factor == 8);
  const ModelConfig written = again(model, kOlmo3Family);
  EXPECT_EQ(windows(written), windows(model));
  for (const int64_t layer : {0, 3}) EXPECT_TRUE(block_form(written, layer).rotary == block_form(model, layer).rotary);
  EXPECT_EQ(export_limits(model), "");
  ModelConfig other = model;
  other.rope_window_theta = 1e4;
  EXPECT_EQ(
      export_limits(other),
      "gpt-export will write this model for transformers, but not for llama.cpp: its architecture olmo2 has one base "
      "of RoPE's frequencies");
  other = model;
  other.tie_weights = true;
  EXPECT_EQ(export_limits(other),
            "gpt-export will write this model for transformers, but not for llama.cpp: its architecture olmo2 has "
            "model.tie_weights false");
  json newer = file;  // as version 5 of transformers writes it, with all layers scaled
  newer["rope_parameters"] = {{"full_attention", newer["rope_scaling"]}, {"sliding_attention", newer["rope_scaling"]}};
  newer.erase("rope_scaling");
  const ModelConfig all_scaled = read(newer, kOlmo3Family);
  EXPECT_TRUE(block_form(all_scaled, 0).rotary == full && block_form(all_scaled, 3).rotary == full);
  EXPECT_TRUE(block_form(again(all_scaled, kOlmo3Family), 0).rotary == full);
}

// The architectures that read what frequencies are divided by are those of Llama and of Mistral.
TEST(Families, ScaleRotationsInLlamaCppAsItsArchitecturesDo) {
  ModelConfig model;
  model.vocab_size = 64, model.rope_scaling.kind = RopeScalingKind::llama3, model.qk_norm = QkNorm::heads;
  EXPECT_EQ(export_limits(model),
            "gpt-export will write this model for transformers, but not for llama.cpp: its architecture qwen3 has "
            "no llama3 in model.rope_scaling");
  model.qk_norm = QkNorm::none, model.rope_pattern = "RRRN";
  EXPECT_EQ(architecture_of(model), "granite_swa") << "which smollm3 has not";
  model.rope_pattern = "R";
  EXPECT_EQ(export_limits(model), "");
  model.rope_scaling = {.kind = RopeScalingKind::yarn, .factor = 8, .attention_factor = 1.5};
  std::map<std::string, float> numbers;
  for (const ArchitectureKey& key : kLlamaFamily.architectures[0]->keys(model))
    if (const float* const number = std::get_if<float>(&key.value)) numbers[key.name] = *number;
  EXPECT_FLOAT_EQ(numbers.at("rope.scaling.attn_factor"), 1.5 / 1.2079441541679836)
      << "beside what llama.cpp has itself";
  EXPECT_EQ(numbers.at("rope.scaling.yarn_beta_fast"), 32);
}

}  // namespace
}  // namespace gpt::exchange
