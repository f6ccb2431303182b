// config.json of models of a family, and what is read of them.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "gpt/exchange/families.h"
#include "gpt/exchange/hugging_face.h"
#include "support/expect_error.h"

namespace gpt::exchange::family_files {

using nlohmann::json;

inline const json kSizes = {{"hidden_act", "silu"},          {"hidden_size", 16},      {"intermediate_size", 24},
                            {"num_attention_heads", 4},      {"num_hidden_layers", 4}, {"num_key_value_heads", 2},
                            {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-6},   {"vocab_size", 10},
                            {"torch_dtype", "bfloat16"},     {"use_cache", true}};

inline json with(const json& members) {
  json file = kSizes;
  file.update(members);
  return file;
}

inline ModelConfig read(const json& file, const Family& expected) {
  const ForeignForm form = read_config_json(file.dump(), "a/config.json");
  EXPECT_EQ(form.family, &expected);
  return form.model;
}

// The model of the file that an export of `model` would have.
inline ModelConfig again(const ModelConfig& model, const Family& expected) {
  EXPECT_EQ(&family_of(model, "here", "transformers"), &expected);
  return read(json::parse(config_json(model, expected, "float32", {}).dump()), expected);
}

inline void expect_refused(const json& file, const std::string& part) {
  EXPECT_ERROR(read_config_json(file.dump(), "a/config.json"), ExitCode::checkpoint, "a/config.json: " + part);
}

}  // namespace gpt::exchange::family_files
