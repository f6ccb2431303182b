#include "gpt/layout/parameter_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gpt::layout {
namespace {

ModelConfig gpt2_small() {
  ModelConfig config;
  config.n_layer = 12;
  config.n_head = 12;
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
  config.n_layer = 32;
  config.n_head = 32;
  config.n_embd = 4096;
  config.n_hidden = 11008;
  config.block_size = 4096;
  config.vocab_size = 32000;
  config.tie_weights = false;
  return config;
}

TEST(ParameterTable, CountWhatThePublishedModelsHave) {
  ModelConfig config = gpt2_small();
  EXPECT_EQ(parameter_count(config), 124439808);
  config.vocab_multiple = 128;  // 50257 -> 50304
  EXPECT_EQ(parameter_count(config), 124439808 + 47 * 768);
  config = gpt2_small();
  config.n_layer = 48, config.n_head = 25, config.n_embd = 1600;
  EXPECT_EQ(parameter_count(config), 1557611200);
  EXPECT_EQ(parameter_count(llama2_7b()), 6738415616);
  config = llama2_7b();  // Mistral 7B
  config.n_kv_head = 8, config.n_hidden = 14336;
  EXPECT_EQ(parameter_count(config), 7241732096);
  config = llama2_7b();  // Mistral Nemo, whose heads are narrower than n_embd / n_head
  config.n_layer = 40, config.n_embd = 5120, config.n_kv_head = 8, config.n_head_dim = 128;
  config.n_hidden = 14336, config.vocab_size = 131072;
  EXPECT_EQ(parameter_count(config), 12247782400);
}

TEST(ParameterTable, AttentionCostsWhatItsHeadsAreWide) {
  ModelConfig config = llama2_7b();
  const double before = flops_per_token(config);
  const int64_t parameters = parameter_count(config);
  config.n_head_dim = 64;  // half
  const double scores = 12.0 * static_cast<double>(config.n_layer * config.n_embd * config.block_size),
               products = 6.0 * static_cast<double>(parameters - parameter_count(config));
  EXPECT_DOUBLE_EQ(flops_per_token(config), before - scores / 2 - products);
}

TEST(ParameterTable, GroupsAddUpToTheModel) {
  for (const auto& config : {gpt2_small(), llama2_7b()}) {
    const auto groups = parameter_groups(config);
    EXPECT_EQ(std::accumulate(groups.begin(), groups.end(), int64_t{0},
                              [](auto sum, auto& g) { return sum + g.second; }),
              parameter_count(config));
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

TEST(ParameterTable, SaysWhatEachParameterIs) {
  ModelConfig config = gpt2_small();
  config.vocab_multiple = 128;
  const auto rows = parameter_table(config);
  const auto row = [&](const std::string& name) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const ParameterRow& r) { return r.name == name; });
    return found == rows.end() ? throw std::out_of_range(name) : *found;
  };
  const ParameterRow wte = row("transformer.wte.weight");
  EXPECT_EQ(wte.role, ParameterRole::token_embedding);
  EXPECT_EQ(wte.tied_name, "lm_head.weight");
  EXPECT_EQ(wte.initial.padding_rows, 47);
  EXPECT_EQ(wte.initial.normal_std, 0.02);
  EXPECT_TRUE(wte.decays());
  const ParameterRow residual = row("transformer.h.3.mlp.c_proj.weight"), bias = row("transformer.h.3.mlp.c_proj.bias");
  EXPECT_EQ(residual.role, ParameterRole::mlp_out);
  EXPECT_EQ(residual.layer, 3);
  EXPECT_DOUBLE_EQ(residual.initial.normal_std, 0.02 / std::sqrt(24.0));
  EXPECT_FALSE(residual.is_bias);
  EXPECT_TRUE(bias.is_bias);
  EXPECT_FALSE(bias.decays());
  EXPECT_EQ(bias.initial.normal_std, 0);
  EXPECT_EQ(row("transformer.ln_f.weight").initial.constant, 1);
  EXPECT_EQ(row("transformer.ln_f.weight").layer, 12);
}

TEST(ParameterTable, LaysParametersOutInTheOrderOfTheBackwardPass) {
  ModelConfig config = llama2_7b();
  config.n_layer = 2;
  const auto rows = parameter_table(config);
  const FlatLayout layout = flat_layout(rows);
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return layout.offsets[a] < layout.offsets[b]; });
  std::vector<std::string> names;
  for (const size_t i : order) names.push_back(rows[i].name);
  const std::string h = "transformer.h.";
  EXPECT_EQ(names,
            (std::vector<std::string>{"lm_head.weight", "transformer.ln_f.weight",  //
                                      h + "1.mlp.w2.weight", h + "1.mlp.w3.weight", h + "1.mlp.w1.weight",
                                      h + "1.ln_2.weight", h + "1.attn.c_proj.weight", h + "1.attn.c_attn.weight",
                                      h + "1.ln_1.weight", h + "0.mlp.w2.weight", h + "0.mlp.w3.weight",
                                      h + "0.mlp.w1.weight", h + "0.ln_2.weight", h + "0.attn.c_proj.weight",
                                      h + "0.attn.c_attn.weight", h + "0.ln_1.weight", "transformer.wte.weight"}));
}

TEST(ParameterTable, NoBlockHoldsValuesOfTwoParametersAndRangesCoverThemAll) {
  for (ModelConfig config : {gpt2_small(), llama2_7b()}) {
    config.n_embd = 60, config.n_head = 3, config.n_layer = 2;  // nothing is a multiple of 256
    const auto rows = parameter_table(config);
    const FlatLayout layout = flat_layout(rows);
    std::vector<std::pair<int64_t, int64_t>> blocks;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t begin = layout.offsets[i], end = begin + rows[i].count();
      EXPECT_EQ(begin % kParameterAlignment, 0) << rows[i].name;
      EXPECT_LE(end, layout.size) << rows[i].name;
      blocks.emplace_back(begin / kParameterAlignment, (end - 1) / kParameterAlignment);
      const auto ranges = decay_ranges(rows, layout);
      EXPECT_EQ(std::count_if(ranges.begin(), ranges.end(),
                              [&](const FlatRange& range) {
                                return range.begin <= begin && end <= range.end && range.decays == rows[i].decays();
                              }),
                1)
          << rows[i].name;
    }
    std::sort(blocks.begin(), blocks.end());
    for (size_t i = 1; i < blocks.size(); ++i) EXPECT_GT(blocks[i].first, blocks[i - 1].second);
  }
}

}  // namespace
}  // namespace gpt::layout
