// What our models are called in transformers, held against names and shapes that were written down from its sources.
#include "gpt/exchange/hugging_face.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;

ModelConfig tiny_llama() {
  ModelConfig model;
  model.n_layer = 1;
  model.n_head = 4;
  model.n_kv_head = 2;
  model.n_embd = 16;
  model.n_hidden = 24;
  model.block_size = 8;
  model.vocab_size = 10;
  return model;
}

ModelConfig tiny_gpt2() {
  ModelConfig model = tiny_llama();
  model.norm = Norm::layernorm;
  model.mlp = Mlp::gelu;
  model.position = Position::learned;
  model.bias = true;
  model.n_kv_head.reset();
  return model;
}

using Shapes = std::map<std::string, std::vector<int64_t>>;

Shapes shapes_of(const ModelConfig& model) {
  Shapes shapes;
  for (const Counterpart& part : counterparts(model, family_of(model, "here", "transformers")))
    shapes[part.name] = part.shape;
  return shapes;
}

const Shapes kGpt2Shapes = {{"transformer.wte.weight", {10, 16}},
                            {"transformer.wpe.weight", {8, 16}},
                            {"transformer.h.0.ln_1.weight", {16}},
                            {"transformer.h.0.ln_1.bias", {16}},
                            {"transformer.h.0.attn.c_attn.weight", {16, 48}},
                            {"transformer.h.0.attn.c_attn.bias", {48}},
                            {"transformer.h.0.attn.c_proj.weight", {16, 16}},
                            {"transformer.h.0.attn.c_proj.bias", {16}},
                            {"transformer.h.0.ln_2.weight", {16}},
                            {"transformer.h.0.ln_2.bias", {16}},
                            {"transformer.h.0.mlp.c_fc.weight", {16, 24}},
                            {"transformer.h.0.mlp.c_fc.bias", {24}},
                            {"transformer.h.0.mlp.c_proj.weight", {24, 16}},
                            {"transformer.h.0.mlp.c_proj.bias", {16}},
                            {"transformer.ln_f.weight", {16}},
                            {"transformer.ln_f.bias", {16}}};

TEST(HuggingFace, Gpt2HasItsNamesAndShapes) {
  EXPECT_EQ(shapes_of(tiny_gpt2()), kGpt2Shapes);
  ModelConfig plain = tiny_gpt2();
  plain.bias = false;
  plain.tie_weights = false;
  Shapes untied = kGpt2Shapes;
  untied["lm_head.weight"] = {10, 16};
  EXPECT_EQ(shapes_of(plain), untied) << "its biases are zeros";
  for (const Counterpart& part : counterparts(plain, kGpt2Family))
    EXPECT_EQ(part.is_zero, part.name.ends_with(".bias")) << part.name;
}

TEST(HuggingFace, LlamaHasItsNamesAndShapes) {
  const Shapes shapes = {{"model.embed_tokens.weight", {10, 16}},
                         {"model.layers.0.input_layernorm.weight", {16}},
                         {"model.layers.0.self_attn.q_proj.weight", {16, 16}},
                         {"model.layers.0.self_attn.k_proj.weight", {8, 16}},
                         {"model.layers.0.self_attn.v_proj.weight", {8, 16}},
                         {"model.layers.0.self_attn.o_proj.weight", {16, 16}},
                         {"model.layers.0.post_attention_layernorm.weight", {16}},
                         {"model.layers.0.mlp.gate_proj.weight", {24, 16}},
                         {"model.layers.0.mlp.up_proj.weight", {24, 16}},
                         {"model.layers.0.mlp.down_proj.weight", {16, 24}},
                         {"model.norm.weight", {16}}};
  EXPECT_EQ(shapes_of(tiny_llama()), shapes);
  for (const Counterpart& part : counterparts(tiny_llama(), kLlamaFamily)) {
    if (part.name.ends_with("q_proj.weight")) { EXPECT_EQ(part.begin, 0); }
    if (part.name.ends_with("k_proj.weight")) { EXPECT_EQ(part.begin, 16); }
    if (part.name.ends_with("v_proj.weight")) { EXPECT_EQ(part.begin, 24); }
  }
}

TEST(HuggingFace, LlamasHeadsMayHaveAWidthOfTheirOwn) {
  ModelConfig model = tiny_llama();
  model.n_head_dim = 6;
  const Shapes shapes = shapes_of(model);
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_proj.weight"), (std::vector<int64_t>{24, 16}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.k_proj.weight"), (std::vector<int64_t>{12, 16}));
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.o_proj.weight"), (std::vector<int64_t>{16, 24}));
  for (const Counterpart& part : counterparts(model, kLlamaFamily)) {
    if (part.name.ends_with("k_proj.weight")) { EXPECT_EQ(part.begin, 24); }
    if (part.name.ends_with("v_proj.weight")) { EXPECT_EQ(part.begin, 36); }
  }
}

TEST(HuggingFace, AFormOfNeitherFamilyIsRefusedWithWhatWouldFit) {
  const auto refused = [](ModelConfig model, const std::string& part) {
    EXPECT_ERROR(family_of(model, "a/ckpt.pt", "transformers"), ExitCode::checkpoint,
                 "a/ckpt.pt: transformers has no model of this form: " + part);
  };
  ModelConfig model = tiny_llama();
  model.mlp = Mlp::geglu;
  refused(model, "model.mlp geglu (Llama has swiglu); it takes");
  model = tiny_llama();
  model.position = Position::learned;
  refused(model, "model.position learned (Llama has rope); it takes");
  model = tiny_gpt2();
  model.n_kv_head = 2;
  refused(model, "model.n_kv_head 2 (GPT-2 has 4); it takes");
  model = tiny_llama();
  model.mlp = Mlp::geglu;
  model.position = Position::learned;
  refused(model, "model.mlp geglu (Llama has swiglu), model.position learned (Llama has rope); it takes");
  model = tiny_gpt2();
  model.n_head = 3, model.n_head_dim = 4;
  refused(model, "model.head_dim 4 (GPT-2 has 5); it takes");
}

TEST(HuggingFace, WhatAnExportWillRefuseIsKnownBefore) {
  EXPECT_EQ(export_limits(tiny_llama()), "");
  EXPECT_EQ(export_limits(tiny_gpt2()), "");
  ModelConfig model = tiny_llama();
  model.norm = Norm::layernorm;
  EXPECT_EQ(export_limits(model).find(
                "gpt-export will not write this model for transformers or llama.cpp, which have no "
                "such form: model.norm layernorm (Llama has rmsnorm)"),
            0);
  model = tiny_llama();
  model.n_head = 5, model.n_head_dim = 4, model.n_kv_head = 5;
  EXPECT_EQ(export_limits(model),
            "gpt-export will write this model for llama.cpp, but not for transformers: model.n_head 5 does not divide "
            "model.n_embd 16");
}

TEST(HuggingFace, WindowsThatHideNothingAreNone) {
  for (ModelConfig model : {tiny_llama(), tiny_gpt2()}) {
    model.n_layer = 2, model.attention_window = model.block_size;
    EXPECT_EQ(misfits(model), "");
  }
  ModelConfig model = tiny_gpt2();
  model.n_layer = 2, model.attention_window = 4;
  EXPECT_ERROR(family_of(model, "a/ckpt.pt", "transformers"), ExitCode::checkpoint,
               "a/ckpt.pt: transformers has no model of this form: model.attention_window 4 (GPT-2 has 0)");
}

TEST(HuggingFace, AModelThatChoosesBlocksIsRefused) {
  for (ModelConfig model : {tiny_llama(), tiny_gpt2()}) {
    model.block_size = 512, model.attention = AttentionForm::blocks;
    EXPECT_ERROR(family_of(model, "a/ckpt.pt", "llama.cpp"), ExitCode::checkpoint,
                 "a/ckpt.pt: llama.cpp has no model of this form: model.attention blocks (");
    model.attention_top_blocks = 8;  // there are no more
    EXPECT_EQ(misfits(model), "");
  }
}

TEST(HuggingFace, TheConfigurationSaysWhatTransformersNeeds) {
  const auto expect_members = [](const nlohmann::ordered_json& written, const char* members) {
    const json file = json::parse(written.dump()), expected = json::parse(members);
    for (const auto& [key, value] : expected.items()) EXPECT_EQ(file.value(key, json("missing")), value) << key;
  };
  expect_members(
      config_json(tiny_gpt2(), kGpt2Family, "float16", {.begin = 7, .pad = 3, .ends = {7, 2}}),
      R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 8, "n_ctx": 8, "n_embd": 16,
                     "n_layer": 1, "n_head": 4, "n_inner": 24, "activation_function": "gelu_new", "vocab_size": 10,
                     "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true, "bos_token_id": 7, "eos_token_id": [7, 2],
                     "pad_token_id": 3,
                     "dtype": "float16"})");
  expect_members(
      config_json(tiny_llama(), kLlamaFamily, "float32", {}),
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "intermediate_size": 24,
                     "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
                     "max_position_embeddings": 8, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0,
                     "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "attention_bias": false,
                     "mlp_bias": false, "tie_word_embeddings": true, "bos_token_id": null, "eos_token_id": null,
                     "vocab_size": 10})");
}

// The smallest files that transformers' own defaults make complete.
const char* const kGpt2Config = R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 16, "n_layer": 1, "n_head": 4})";
const char* const kLlamaConfig =
    R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 16, "intermediate_size": 24,
                                     "num_hidden_layers": 1, "num_attention_heads": 4})";

TEST(HuggingFace, MissingSettingsHaveTheDefaultsOfTransformers) {
  const ModelConfig gpt2 = read_config_json(kGpt2Config, "here").model;
  EXPECT_EQ(gpt2.block_size, 1024);
  EXPECT_EQ(gpt2.hidden(), 64);
  EXPECT_EQ(gpt2.norm_eps, 1e-5);
  EXPECT_TRUE(gpt2.bias && gpt2.tie_weights);
  const ModelConfig llama = read_config_json(kLlamaConfig, "here").model;
  EXPECT_EQ(llama.block_size, 2048);
  EXPECT_EQ(llama.kv_heads(), 4);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_FALSE(llama.bias || llama.tie_weights);
}

TEST(HuggingFace, AConfigurationOfOursIsReadAsItWas) {
  ModelConfig model = tiny_llama();
  model.rope_theta = 5e5;
  model.bias = true;
  ModelConfig wide = model;
  wide.n_head_dim = 6;
  for (const ModelConfig& written : {model, wide, tiny_gpt2()}) {
    const Family& family = family_of(written, "here", "transformers");
    const ForeignForm read = read_config_json(config_json(written, family, "float32", {}).dump(), "here");
    EXPECT_EQ(read.family, &family);
    EXPECT_EQ(shapes_of(read.model), shapes_of(written));
    EXPECT_EQ(read.model.rope_theta, written.rope_theta);
    EXPECT_EQ(read.model.block_size, 8);
  }
}

TEST(HuggingFace, BothSpellingsOfRopeAreRead) {
  json file = json::parse(kLlamaConfig);
  file["rope_theta"] = 5000;
  EXPECT_EQ(read_config_json(file.dump(), "here").model.rope_theta, 5000);
  file["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7000.0}};
  EXPECT_EQ(read_config_json(file.dump(), "here").model.rope_theta, 7000);
}

TEST(HuggingFace, YarnIsReadAsTransformersReadsIt) {
  const auto scaling_of = [](const json& rope) {
    json file = json::parse(kLlamaConfig);
    file["rope_scaling"] = rope;
    return read_config_json(file.dump(), "here").model.rope_scaling;
  };
  const RopeScaling plain = scaling_of({{"type", "yarn"}, {"factor", 4.0}});
  EXPECT_EQ(plain, (RopeScaling{.kind = RopeScalingKind::yarn, .factor = 4, .original_length = plain.original_length}));
  EXPECT_EQ(plain.original_length, 2048) << "the positions of the model, as in transformers";
  EXPECT_EQ(
      scaling_of(
          {{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 8}, {"beta_slow", 2}, {"attention_factor", 1.2}}),
      (RopeScaling{.kind = RopeScalingKind::yarn,
                   .factor = 4,
                   .beta_slow = 2,
                   .beta_fast = 8,
                   .attention_factor = 1.2,
                   .original_length = plain.original_length}));
  EXPECT_EQ(scaling_of({{"rope_type", "yarn"}, {"factor", 40}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}}).magnitude(),
            1);
  EXPECT_DOUBLE_EQ(
      scaling_of({{"rope_type", "yarn"}, {"factor", 40}, {"mscale", 0.707}, {"mscale_all_dim", 1.0}}).magnitude(),
      (1 + 0.0707 * std::log(40)) / (1 + 0.1 * std::log(40)));
  EXPECT_EQ(scaling_of({{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 8}}).factor,
            static_cast<double>(plain.original_length) / 8);
}

// The values are those that LlamaConfig of transformers 5.24 has for such files.
TEST(HuggingFace, RopeScalingTakesThePlaceOfRopeParameters) {
  const json kDefault = {{"rope_type", "default"}}, kOwn = {{"rope_type", "default"}, {"rope_theta", 7000.0}};
  const auto theta = [](const json& members) {
    json file = json::parse(kLlamaConfig);
    file.update(members);
    return read_config_json(file.dump(), "here").model.rope_theta;
  };
  EXPECT_EQ(theta({{"rope_scaling", kDefault}, {"rope_parameters", kOwn}, {"rope_theta", 5000}}), 5000);
  EXPECT_EQ(theta({{"rope_scaling", kDefault}, {"rope_parameters", kOwn}}), 10000);
  EXPECT_EQ(theta({{"rope_scaling", {{"rope_theta", 9000}}}, {"rope_parameters", kOwn}, {"rope_theta", 5000}}), 9000);
  EXPECT_EQ(theta({{"rope_scaling", kDefault}, {"rope_parameters", {{"rope_type", "yarn"}}}}), 10000);
  for (const json& nothing : {json(), json::object()})
    EXPECT_EQ(theta({{"rope_scaling", nothing}, {"rope_parameters", kOwn}, {"rope_theta", 5000}}), 7000);
  EXPECT_EQ(theta({{"rope_parameters", kDefault}, {"rope_theta", 5000}}), 5000);
}

TEST(HuggingFace, ScaledRopeIsReadAndWritten) {
  json file = json::parse(kLlamaConfig);
  file["rope_scaling"] = {{"factor", 32.0},
                          {"high_freq_factor", 4.0},
                          {"low_freq_factor", 1.0},
                          {"original_max_position_embeddings", 8192},
                          {"rope_type", "llama3"}};
  file["rope_theta"] = 500000.0;  // as Llama 3.2 has it
  const ModelConfig llama3 = read_config_json(file.dump(), "here").model;
  EXPECT_EQ(llama3.rope_theta, 500000);
  const RopeScaling expected{
      .kind = RopeScalingKind::llama3, .factor = 32, .low = 1, .high = 4, .original_length = 8192};
  EXPECT_EQ(llama3.rope_scaling, expected);
  file["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  const ModelConfig linear = read_config_json(file.dump(), "here").model;
  EXPECT_EQ(linear.rope_scaling, (RopeScaling{.kind = RopeScalingKind::linear, .factor = 2}));
  for (const ModelConfig& model : {llama3, linear}) {
    const json written = json::parse(config_json(model, kLlamaFamily, "float32", {}).dump());
    EXPECT_EQ(read_config_json(written.dump(), "here").model.rope_scaling, model.rope_scaling);
    for (const char* version : {"rope_scaling", "rope_parameters"}) {
      json of_version = written;
      of_version.erase(version);
      EXPECT_EQ(read_config_json(of_version.dump(), "here").model.rope_scaling, model.rope_scaling) << version;
    }
  }
}

TEST(HuggingFace, OtherFormsAreRefusedByName) {
  const auto refused = [](const char* base, const std::string& change, const std::string& part) {
    json file = json::parse(base);
    file.merge_patch(json::parse(change));
    EXPECT_ERROR(read_config_json(file.dump(), "a/config.json"), ExitCode::checkpoint, "a/config.json" + part);
  };
  refused(
      kGpt2Config, R"({"model_type": "mamba"})",
      ": model_type is \"mamba\"; this program has only llama, gpt2, qwen2, qwen3, mistral, ministral, smollm3, gemma, gemma3_text, olmo2, olmo3 and arcee");
  refused(kGpt2Config, R"({"activation_function": "relu"})",
          ": activation_function is \"relu\"; this program has only \"gelu_new\"");
  refused(kGpt2Config, R"({"scale_attn_weights": false})", ": scale_attn_weights is false");
  refused(kGpt2Config, R"({"scale_attn_by_inverse_layer_idx": true})", ": scale_attn_by_inverse_layer_idx is true");
  refused(kGpt2Config, R"({"add_cross_attention": true})", ": add_cross_attention is true");
  refused(kGpt2Config, R"({"n_embd": null})", ": n_embd is missing; a whole number from 1 on is needed");
  refused(kGpt2Config, R"({"n_layer": 1e30})", ": n_layer is 1e+30");
  refused(kGpt2Config, R"({"n_layer": -1})", ": n_layer is -1");
  refused(kGpt2Config, R"({"n_layer": 100000})", " cannot be used: ");
  refused(kGpt2Config, R"({"n_head": 3})", " cannot be used: a/config.json: n_embd 16 is not divisible by n_head 3");
  refused(kGpt2Config, R"({"layer_norm_epsilon": "x"})", ": layer_norm_epsilon is \"x\"; a number is needed");
  refused(kGpt2Config, R"({"tie_word_embeddings": 1})", ": tie_word_embeddings is 1; true or false is needed");
  refused(kLlamaConfig, R"({"hidden_act": "gelu"})", ": hidden_act is \"gelu\"; this program has only \"silu\"");
  refused(kLlamaConfig, R"({"rope_scaling": {"type": "longrope", "factor": 2}})",
          ": rope_scaling.type is \"longrope\"; this program has default, linear, llama3 and yarn");
  refused(kLlamaConfig, R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "truncate": false}})",
          ": rope_scaling.truncate is false");
  refused(kLlamaConfig, R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "attention_factor": 0}})",
          ": rope_scaling.attention_factor is 0; it must be more than 0");
  refused(kLlamaConfig,
          R"({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
              "original_max_position_embeddings": 8192}})",
          " cannot be used: a/config.json: rope_low_freq_factor 4 must be less than rope_high_freq_factor 4");
  refused(kLlamaConfig, R"({"rope_parameters": [1]})", ": rope_parameters is [1]; an object is needed");
  refused(kLlamaConfig, R"({"partial_rotary_factor": 0.5})", ": partial_rotary_factor is 0.5");
  refused(kLlamaConfig, R"({"attention_bias": true})", ": attention_bias is true; mlp_bias differs");
  refused(kLlamaConfig, R"({"head_dim": 7})", " cannot be used: ");
  refused(kLlamaConfig, R"({"num_key_value_heads": 3})", " cannot be used: ");
  refused(kLlamaConfig, R"({"use_qk_norm": true})", ": use_qk_norm is true");
  refused(kLlamaConfig, R"({"quantization_config": {}})",
          ": quantization_config is {}; this program has only models without it");
  EXPECT_ERROR(read_config_json("{", "a/config.json"), ExitCode::checkpoint,
               "a/config.json cannot be used: it is not JSON");
  EXPECT_ERROR(read_config_json("[]", "a/config.json"), ExitCode::checkpoint, "it is no JSON object");
  EXPECT_ERROR(read_config_json(std::string(99, '['), "a/config.json"), ExitCode::checkpoint, "it is nested too deep");
}

}  // namespace
}  // namespace gpt::exchange
