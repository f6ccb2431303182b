#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "exchange/family_files.h"

namespace gpt::exchange {
namespace {

// The members are those of AFM-4.5B's file.
TEST(Families, ArceeSquaresReluWithoutAGate) {
  using nlohmann::json;
  using namespace family_files;
  const json file = with({{"architectures", {"ArceeForCausalLM"}},
                          {"model_type", "arcee"},
                          {"attention_bias", false},
                          {"bos_token_id", 0},
                          {"eos_token_id", 1},
                          {"head_dim", 4},
                          {"hidden_act", "relu2"},
                          {"mlp_bias", false},
                          {"rope_scaling",
                           {{"beta_fast", 32.0},
                            {"beta_slow", 1.0},
                            {"factor", 20.0},
                            {"mscale", 1.0},
                            {"original_max_position_embeddings", 16},
                            {"rope_type", "yarn"}}},
                          {"rope_theta", 10000.0},
                          {"tie_word_embeddings", false}});
  const ModelConfig model = read(file, kArceeFamily);
  EXPECT_TRUE(model.mlp == Mlp::relu2 && !model.is_gated() && !model.bias && !model.tie_weights);
  EXPECT_EQ(model.rope_scaling.factor, 20);
  std::set<std::string> products;
  for (const Counterpart& part : counterparts(model, kArceeFamily))
    if (part.name.find("layers.3.mlp.") != std::string::npos) products.insert(part.name + " " + part.gguf_name);
  EXPECT_EQ(products, (std::set<std::string>{"model.layers.3.mlp.down_proj.weight blk.3.ffn_down.weight",
                                             "model.layers.3.mlp.up_proj.weight blk.3.ffn_up.weight"}));
  EXPECT_TRUE(again(model, kArceeFamily).mlp == Mlp::relu2);
  EXPECT_EQ(export_limits(model), "");
  json changed = file;
  for (const char* key : {"hidden_act", "rms_norm_eps", "mlp_bias", "attention_bias", "rope_theta"}) changed.erase(key);
  EXPECT_EQ(read(changed, kArceeFamily).norm_eps, 1e-5) << "as in transformers";
  changed["attention_bias"] = changed["mlp_bias"] = true;
  EXPECT_TRUE(again(read(changed, kArceeFamily), kArceeFamily).bias);
  EXPECT_EQ(
      export_limits(read(changed, kArceeFamily)),
      "gpt-export will write this model for transformers, but not for llama.cpp: its architecture arcee has model.bias false");
  changed["mlp_bias"] = false;
  expect_refused(changed, "attention_bias is true");
  changed = file, changed["hidden_act"] = "silu";
  expect_refused(changed, "hidden_act is \"silu\"");
}

}  // namespace
}  // namespace gpt::exchange
