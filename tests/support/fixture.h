// Reads the files that scripts/make_fixtures.py writes: the safetensors format, its metadata being the configuration.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/parameters/named_tensors.h"
#include "support/source_folder.h"

namespace gpt::test {

struct Fixture {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;

  double number(const std::string& key) const { return std::stod(metadata.at(key)); }
  int64_t integer(const std::string& key) const { return std::stoll(metadata.at(key)); }

  // Tensors whose names start with `prefix`, without it.
  NamedTensors group(const std::string& prefix) const {
    NamedTensors result;
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
    config.n_hidden = integer("n_hidden");
    config.block_size = integer("block_size");
    config.vocab_size = integer("vocab_size");
    config.vocab_multiple = integer("vocab_multiple");
    config.norm = metadata.at("norm") == "layernorm" ? Norm::layernorm : Norm::rmsnorm;
    config.mlp = metadata.at("mlp") == "gelu" ? Mlp::gelu : Mlp::swiglu;
    config.position = metadata.at("position") == "learned" ? Position::learned : Position::rope;
    config.rope_theta = number("rope_theta");
    config.norm_eps = number("norm_eps");
    config.bias = metadata.at("bias") == "True";
    config.tie_weights = metadata.at("tie_weights") == "True";
    return config;
  }
};

inline Fixture read_fixture(const std::string& form) {
  const std::string path = test::source_folder() + "/tests/fixtures/" + form + ".safetensors";
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 8) throw std::runtime_error("cannot read " + path + "; scripts/make_fixtures.py makes it");
  uint64_t header_length;
  std::memcpy(&header_length, bytes.data(), sizeof header_length);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_length));
  const std::map<std::string, at::ScalarType> dtypes{{"F32", at::kFloat}, {"F64", at::kDouble}, {"I64", at::kLong}};

  Fixture fixture;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      fixture.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    const auto shape = entry.at("shape").get<std::vector<int64_t>>();
    char* data = bytes.data() + 8 + header_length + entry.at("data_offsets")[0].get<size_t>();
    fixture.tensors[name] = at::from_blob(data, shape, at::dtype(dtypes.at(entry.at("dtype")))).clone();
  }
  return fixture;
}

}  // namespace gpt::test
