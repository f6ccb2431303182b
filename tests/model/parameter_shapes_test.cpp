#include "gpt/model/parameter_shapes.h"

#include <gtest/gtest.h>

#include <numeric>

namespace gpt {
namespace {

int64_t total(const ModelConfig& config) {
  int64_t sum = 0;
  for (const auto& parameter : parameter_shapes(config)) sum += parameter.count();
  return sum;
}

ModelConfig gpt2_small() {
  ModelConfig config;
  config.n_layer = config.n_head = 12;
  config.n_embd = 768;
  config.block_size = 1024;
  config.vocab_size = 50257;
  config.vocab_multiple = 1;
  config.norm = Norm::layernorm;
  config.mlp = Mlp::gelu;
  config.position = Position::learned;
  config.bias = true;
  return config;
}

ModelConfig llama2_7b() {
  ModelConfig config;
  config.n_layer = config.n_head = 32;
  config.n_embd = 4096;
  config.n_hidden = 11008;
  config.block_size = 4096;
  config.vocab_size = 32000;
  config.tie_weights = false;
  return config;
}

TEST(ParameterShapes, CountWhatThePublishedModelsHave) {
  ModelConfig config = gpt2_small();
  EXPECT_EQ(total(config), 124439808);
  config.vocab_multiple = 128;  // 50257 -> 50304
  EXPECT_EQ(total(config), 124439808 + 47 * 768);
  config = gpt2_small();
  config.n_layer = 48, config.n_head = 25, config.n_embd = 1600;
  EXPECT_EQ(total(config), 1557611200);
  EXPECT_EQ(total(llama2_7b()), 6738415616);
  config = llama2_7b();  // Mistral 7B
  config.n_kv_head = 8, config.n_hidden = 14336;
  EXPECT_EQ(total(config), 7241732096);
}

TEST(ParameterShapes, GroupsAddUpToTheModel) {
  for (const auto& config : {gpt2_small(), llama2_7b()}) {
    const auto groups = parameter_groups(config);
    EXPECT_EQ(
        std::accumulate(groups.begin(), groups.end(), int64_t{0}, [](auto sum, auto& g) { return sum + g.second; }),
        total(config));
  }
  const auto groups = parameter_groups(gpt2_small());
  ASSERT_EQ(groups.size(), 5u);
  EXPECT_EQ(groups[0], (std::pair<std::string, int64_t>{"embedding", (50257 + 1024) * 768}));
  EXPECT_EQ(groups[1], (std::pair<std::string, int64_t>{"attention", 12 * (4 * 768 * 768 + 4 * 768)}));
  EXPECT_EQ(groups[2], (std::pair<std::string, int64_t>{"mlp", 12 * (8 * 768 * 768 + 5 * 768)}));
  EXPECT_EQ(groups[3], (std::pair<std::string, int64_t>{"norm", 25 * 2 * 768}));
  EXPECT_EQ(groups[4], (std::pair<std::string, int64_t>{"head", 0}));
  EXPECT_EQ(parameter_groups(llama2_7b())[4].second, 32000 * 4096);
}

}  // namespace
}  // namespace gpt
