// What Llama's relatives have in common with it: names, most of config.json, and how positions are rotated.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exchange/config_settings.h"
#include "gpt/exchange/families.h"

namespace gpt::exchange {

// RMSNorm, SwiGLU and RoPE in all layers, without windows, norms of queries and keys, and biases of their own.
void set_llama_blocks(ModelConfig& model);

// Where llama.cpp's RoPE of the architecture turns neighbouring columns (Counterpart::gguf_rope_heads), and where it turns halves as here.
std::vector<Counterpart> llama_counterparts(const ModelConfig& model);
std::vector<Counterpart> llama_counterparts_in_halves(const ModelConfig& model);
// The same for a family that has some names of its own.
std::vector<Counterpart> llama_counterparts(const ModelConfig& model, std::span<const RoleNames> own);
std::vector<Counterpart> llama_counterparts_in_halves(const ModelConfig& model, std::span<const RoleNames> own);

// All but the biases, and what names the family.
nlohmann::ordered_json llama_settings(const ModelConfig& model);
// Widths, numbers, lengths and the norms' epsilon alone. Where the file leaves out heads they are those of the family, if it has such.
struct OtherwiseSizes {
  int64_t positions = 2048;
  std::optional<int64_t> heads = {}, kv_heads = {};
};
ModelConfig read_llama_sizes(const ConfigSettings& settings, const OtherwiseSizes& otherwise = {});
// How positions are rotated: an object of rope_parameters, without and with its base. `positions`: those of the model, which stand for the
// original ones where the file has none.
RopeScaling read_rope_scaling(const ConfigSettings& rope, int64_t positions);
nlohmann::ordered_json rope_json(double theta, const RopeScaling& scaling);
ModelConfig read_llama_settings(const ConfigSettings& settings, double default_theta = 10000,
                                std::initializer_list<nlohmann::json> activations = {"silu", "swish"});
// attention_bias and mlp_bias, for both of which model.bias stands.
void read_llama_biases(const ConfigSettings& settings, ModelConfig& model);
nlohmann::ordered_json llama_biases(const ModelConfig& model);
// Refuses windows, which files of some families may have and no published model has: each layer must see everything.
void require_full_layers(const ConfigSettings& settings, const ModelConfig& model);

// Keys of models with windows: sliding_window, null where no layer has one, and layer_types. Without the first key the window has 4,096
// positions, as in transformers.
nlohmann::ordered_json layer_windows_json(const ModelConfig& model);
int64_t read_window(const ConfigSettings& settings);
void read_layer_types(const ConfigSettings& settings, ModelConfig& model);  // of these models, where it is there

// Keys of models whose windowed layers may have a rotation of their own: rope_parameters with an object for each kind of layer, as version
// 5 of transformers has it. Version 4 has the bases, which the caller reads, and an optional rope_scaling, which both take for the layers
// that see everything.
nlohmann::ordered_json layer_ropes_json(const ModelConfig& model);
void read_layer_ropes(const ConfigSettings& settings, double theta, double window_theta, ModelConfig& model);
std::vector<ArchitectureKey> llama_keys(const ModelConfig& model);
ArchitectureKey window_key(
    const ModelConfig& model);  // its positions, where no layer has one all there are: readers need some number
ArchitectureKey window_pattern_key(const ModelConfig& model);  // which layers have one

// Limits that several programs have.
bool is_every_model(const ModelConfig& model);
bool scales_as_llama3(const ModelConfig& model);
bool scales_as_yarn(const ModelConfig& model);
bool has_tied_head(const ModelConfig& model);
bool has_head_of_its_own(const ModelConfig& model);
bool scales_windowed_layers(const ModelConfig& model);
bool has_two_bases(const ModelConfig& model);
inline constexpr Limit kNoLlama3{"`rope_scaling: llama3`", scales_as_llama3, "has no llama3 in model.rope_scaling"},
    kNoYarn{"`rope_scaling: yarn`", scales_as_yarn, "has no yarn in model.rope_scaling"},
    kUnscaledWindows{"`rope_scaling` of layers with windows", scales_windowed_layers,
                     "scales RoPE in layers without windows alone (model.rope_window_theta)"},
    kOneBase{"another `rope_window_theta` than `rope_theta`", has_two_bases, "has one base of RoPE's frequencies"},
    kTiedHead{"`tie_weights: false`", has_head_of_its_own, "has model.tie_weights true"};
inline constexpr Limit kOfCTranslate2[] = {kNoYarn, kNoLlama3};
inline constexpr Limit kNoSuchFamily[] = {{"", is_every_model, "has no such family"}};

}  // namespace gpt::exchange
