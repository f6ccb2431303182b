// What Llama's relatives have in common with it: names, most of config.json, and how positions are rotated.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "exchange/config_settings.h"
#include "gpt/exchange/families.h"

namespace gpt::exchange {

// RMSNorm, SwiGLU and RoPE in all layers, without windows, norms of queries and keys, and biases of their own.
void set_llama_blocks(ModelConfig& model);

// Where llama.cpp's RoPE of the architecture turns neighbouring columns (Counterpart::gguf_rope_heads), and where it turns halves as here.
std::vector<Counterpart> llama_counterparts(const ModelConfig& model);
std::vector<Counterpart> llama_counterparts_in_halves(const ModelConfig& model);

// All but the biases, and what names the family.
nlohmann::ordered_json llama_settings(const ModelConfig& model);
ModelConfig read_llama_settings(const ConfigSettings& settings, double default_theta = 10000);
// Where a list says what each layer sees, it must be everything.
void require_full_layers(const ConfigSettings& settings, const ModelConfig& model);

std::vector<ArchitectureKey> llama_keys(const ModelConfig& model);

}  // namespace gpt::exchange
