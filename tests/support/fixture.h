// Reads the files that scripts/make_fixtures.py writes: the safetensors format, its metadata being the configuration.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/exchange/safetensors.h"
#include "gpt/parameters/named_tensors.h"
#include "support/source_folder.h"

namespace gpt::test {

struct Fixture {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;

  double number(const std::string& key) const { return std::stod(metadata.at(key)); }
  int64_t integer(const std::string& key) const { return std::stoll(metadata.at(key)); }

  // Tensors whose names start with `prefix`, without it.
  parameters::NamedTensors group(const std::string& prefix) const {
    parameters::NamedTensors result;
    for (const auto& [name, tensor] : tensors) {
      if (name.starts_with(prefix)) result.emplace_back(name.substr(prefix.size()), tensor);
    }
    return result;
  }

  ModelConfig model_config() const {
    ModelConfig config;
    config.n_layer = integer("n_layer");
    config.n_head = integer("n_head");
    config.n_kv_head = integer("n_kv_head");
    config.n_embd = integer("n_embd");
    if (metadata.contains("head_dim")) config.n_head_dim = integer("head_dim");
    const auto word = [&](const std::string& key) { return metadata.contains(key) ? metadata.at(key) : std::string(); };
    config.qk_norm = word("qk_norm") == "heads" ? QkNorm::heads : word("qk_norm") == "all" ? QkNorm::all : QkNorm::none;
    config.norm_place = word("norm_place") == "both"     ? NormPlace::both
                        : word("norm_place") == "output" ? NormPlace::output
                                                         : NormPlace::input;
    config.norm_unit_offset = config.scaled_embedding = metadata.contains("is_gemma");
    if (metadata.contains("window")) {
      config.attention_window = integer("window"), config.window_pattern = metadata.at("window_pattern");
      config.rope_window_theta = number("rope_window_theta");
    }
    config.n_hidden = integer("n_hidden");
    config.block_size = integer("block_size");
    config.vocab_size = integer("vocab_size");
    config.vocab_multiple = integer("vocab_multiple");
    config.norm = metadata.at("norm") == "layernorm" ? Norm::layernorm : Norm::rmsnorm;
    config.mlp = word("mlp") == "gelu"    ? Mlp::gelu
                 : word("mlp") == "relu2" ? Mlp::relu2
                 : word("mlp") == "geglu" ? Mlp::geglu
                                          : Mlp::swiglu;
    config.position = metadata.at("position") == "learned" ? Position::learned : Position::rope;
    config.rope_theta = number("rope_theta");
    config.norm_eps = number("norm_eps");
    config.bias = metadata.at("bias") == "True";
    config.tie_weights = metadata.at("tie_weights") == "True";
    return config;
  }
};

inline Fixture read_fixture(const std::string& form) {
  const exchange::SafetensorsReader file(test::source_folder() + "/tests/fixtures/" + form + ".safetensors");
  const std::map<std::string, at::ScalarType> dtypes{{"F32", at::kFloat}, {"F64", at::kDouble}, {"I64", at::kLong}};
  Fixture fixture{{}, file.metadata()};
  for (const exchange::StoredTensor& stored : file.tensors()) {
    const at::Tensor tensor = at::empty(stored.shape, dtypes.at(stored.dtype));
    std::memcpy(tensor.mutable_data_ptr(), stored.bytes.data(), stored.bytes.size());
    fixture.tensors[stored.name] = tensor;
  }
  return fixture;
}

}  // namespace gpt::test
