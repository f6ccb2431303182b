// What Llama's relatives have in common with it: names, most of config.json, and how positions are rotated.
#pragma once

#include <nlohmann/json.hpp>
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
// Widths, numbers, lengths and the norms' epsilon alone.
ModelConfig read_llama_sizes(const ConfigSettings& settings, int64_t default_positions = 2048);
// How positions are rotated: an object of rope_parameters, without and with its base. `positions`: those of the model, which stand for the
// original ones where the file has none.
RopeScaling read_rope_scaling(const ConfigSettings& rope, int64_t positions);
nlohmann::ordered_json rope_json(double theta, const RopeScaling& scaling);
ModelConfig read_llama_settings(const ConfigSettings& settings, double default_theta = 10000);
// Where a list says what each layer sees, it must be everything.
void require_full_layers(const ConfigSettings& settings, const ModelConfig& model);

// Of models with windows: sliding_window, null where no layer has one, and layer_types. Without the first key the window has 4,096 positions,
// as in transformers.
nlohmann::ordered_json layer_windows_json(const ModelConfig& model);
int64_t read_window(const ConfigSettings& settings);
void read_layer_types(const ConfigSettings& settings, ModelConfig& model);  // of these models, where it is there

// Of models whose windowed layers may have a rotation of their own: rope_parameters with an object for each kind of layer, as version 5 of
// transformers has it. Version 4 has the bases, which the caller reads, and an optional rope_scaling, which both take for the layers that see
// everything.
nlohmann::ordered_json layer_ropes_json(const ModelConfig& model);
void read_layer_ropes(const ConfigSettings& settings, double theta, double window_theta, ModelConfig& model);
// Why llama.cpp's architecture does not compute this model if it never scales the rotation of windowed layers; empty: it does.
std::string unscaled_windows_limit(const ModelConfig& model, std::string_view architecture);

std::vector<ArchitectureKey> llama_keys(const ModelConfig& model);
ArchitectureKey window_pattern_key(const ModelConfig& model);  // which layers have one

}  // namespace gpt::exchange
