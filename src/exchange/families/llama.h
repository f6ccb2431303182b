// What Llama's relatives have in common with it: names, most of config.json, and how positions are rotated.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
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
// How positions are rotated: an object of rope_parameters, without and with its base.
RopeScaling read_rope_scaling(const ConfigSettings& rope);
nlohmann::ordered_json rope_json(double theta, const RopeScaling& scaling);
ModelConfig read_llama_settings(const ConfigSettings& settings, double default_theta = 10000);
// Where a list says what each layer sees, it must be everything.
void require_full_layers(const ConfigSettings& settings, const ModelConfig& model);

// Of models with windows: sliding_window, null where no layer has one, and layer_types. Without the first key the window has 4,096 positions,
// as in transformers.
nlohmann::ordered_json layer_windows_json(const ModelConfig& model);
int64_t read_window(const ConfigSettings& settings);
void read_layer_types(const ConfigSettings& settings, ModelConfig& model);  // of these models, where it is there

std::vector<ArchitectureKey> llama_keys(const ModelConfig& model);
ArchitectureKey window_pattern_key(const ModelConfig& model);  // which layers have one

}  // namespace gpt::exchange
