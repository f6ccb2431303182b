#include "gpt/layout/tuning.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/expect_error.h"

namespace gpt::layout {
namespace {

ModelConfig twelve_layers() {
  ModelConfig config;
  config.n_layer = 12, config.n_head = 2, config.n_embd = 6, config.block_size = 4, config.vocab_size = 5;
  config.norm = Norm::layernorm, config.bias = true, config.position = Position::learned, config.mlp = Mlp::gelu;
  return config;
}

std::set<std::string> frozen(const ModelConfig& config, const std::vector<std::string>& patterns) {
  std::set<std::string> names;
  for (const ParameterRow& row : parameter_table(config, {.freeze = patterns}))
    if (!row.is_trained) names.insert(row.name);
  return names;
}

TEST(Freeze, APatternNamesWhatBeginsWithIt) {
  const ModelConfig config = twelve_layers();
  EXPECT_EQ(frozen(config, {}), std::set<std::string>{});
  EXPECT_EQ(frozen(config, {"wte", "transformer.wpe.weight"}),
            (std::set<std::string>{"transformer.wte.weight", "transformer.wpe.weight"}));
  EXPECT_EQ(frozen(config, {"h.1.ln_1", "h.10.attn.c_proj.bias"}),
            (std::set<std::string>{"transformer.h.1.ln_1.weight", "transformer.h.1.ln_1.bias",
                                   "transformer.h.10.attn.c_proj.bias"}))
      << "h.1 is not the beginning of h.10";
  EXPECT_EQ(frozen(config, {"h.9-11.mlp.c_fc.weight"}),
            (std::set<std::string>{"transformer.h.9.mlp.c_fc.weight", "transformer.h.10.mlp.c_fc.weight",
                                   "transformer.h.11.mlp.c_fc.weight"}));
  EXPECT_EQ(frozen(config, {"h.*.attn.*.weight"}).size(), 24);
  EXPECT_EQ(frozen(config, {"*.weight"}).size(), 3) << "wte, wpe and ln_f";
}

TEST(Freeze, ATiedHeadAndItsEmbeddingAreOne) {
  ModelConfig config = twelve_layers();
  EXPECT_EQ(frozen(config, {"lm_head"}), std::set<std::string>{"transformer.wte.weight"});
  config.tie_weights = false;
  EXPECT_EQ(frozen(config, {"lm_head"}), std::set<std::string>{"lm_head.weight"});
}

TEST(Freeze, WhatNamesNothingOrLeavesNothingIsRefused) {
  ModelConfig config = twelve_layers();
  config.vocab_size.reset();
  require_tunable(config, {.freeze = {"h.0-5", "wte"}});
  for (const char* pattern : {"h.12", "h.0-", "h.5-2", "wt", "mlp", "h.0.attn.c_attn.weight.x", "", "h..attn", "."}) {
    EXPECT_ERROR(require_tunable(config, {.freeze = {"wte", pattern}}), ExitCode::config,
                 std::string("training.freeze: ") + pattern +
                     " names no parameter of this model; there are wte, wpe, h.0-11, ln_f");
  }
  EXPECT_ERROR(require_tunable(config, {.freeze = {"wte", "wpe", "h", "ln_f"}}), ExitCode::config,
               "names all parameters");
}

TEST(Freeze, WhatIsNotTrainedLiesBehindAllOthers) {
  const ModelConfig config = twelve_layers();
  const std::vector<ParameterRow> rows = parameter_table(config, {.freeze = {"wte", "h.*.mlp", "ln_f.weight"}});
  const FlatLayout layout = flat_layout(rows);
  int64_t trained = 0, all = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t size = aligned_end(rows[i].count());
    EXPECT_EQ(layout.offsets[i] + size <= layout.trained_size, rows[i].is_trained) << rows[i].name;
    (rows[i].is_trained ? trained : all) += size;
  }
  EXPECT_EQ(layout.trained_size, trained);
  EXPECT_EQ(layout.size, trained + all);
  EXPECT_LE(decay_ranges(rows, layout).back().end, layout.trained_size);
  EXPECT_EQ(trained_count(rows), parameter_count(rows) - config.padded_vocab() * 6 -
                                     12 * (2 * 6 * config.hidden() + config.hidden() + 6) - 6);
}

TEST(Freeze, TheBackwardPassEndsAtTheFirstThatIsTrained) {
  const ModelConfig config = twelve_layers();
  const auto first = [&](const std::vector<std::string>& patterns) {
    return first_trained_layer(parameter_table(config, {.freeze = patterns}));
  };
  EXPECT_EQ(first({}), -1);
  EXPECT_EQ(first({"h"}), -1);
  EXPECT_EQ(first({"wte"}), -1) << "the positions";
  EXPECT_EQ(first({"wte", "wpe"}), 0);
  EXPECT_EQ(first({"wte", "wpe", "h.0-8"}), 9);
  EXPECT_EQ(first({"wte", "wpe", "h.1-8"}), 0);
  EXPECT_EQ(first({"wte", "wpe", "h"}), 12);
}

// Each of a forward pass's operations is one of three where everything is trained.
TEST(Freeze, SavesTheWorkOfGradientsThatNobodyNeeds) {
  ModelConfig config = twelve_layers();
  config.tie_weights = false;
  const double all = flops_per_token(config);
  const auto flops = [&](const std::vector<std::string>& frozen) {
    return flops_per_token(config, parameter_table(config, {.freeze = frozen}));
  };
  const auto weights_of = [&](const std::string& part) {
    double count = 0;
    for (const ParameterRow& row : parameter_table(config))
      if (row.name.find(part) != std::string::npos) count += static_cast<double>(row.count());
    return count;
  };
  EXPECT_EQ(flops({"lm_head"}), all - 2 * weights_of("lm_head"));
  EXPECT_EQ(flops({"h.3"}), all - 2 * weights_of("h.3."));
  // Below the fourth block there is no backward pass, and so none of attention, whose 12 L C T are 4 forward.
  const double attention = 8 * 3 * 6 * 4;
  EXPECT_EQ(flops({"wte", "wpe", "h.0-2"}),
            all - attention - 4 * (weights_of("h.0.") + weights_of("h.1.") + weights_of("h.2.")));
}

TuningConfig lora(std::vector<std::string> targets, std::vector<std::string> also_train = {}) {
  TuningConfig tuning;
  tuning.lora.rank = 2, tuning.lora.targets = std::move(targets), tuning.lora.also_train = std::move(also_train);
  return tuning;
}

TEST(Lora, EachProductOfATargetHasTwoFactorsBehindTheModelsRows) {
  ModelConfig config = twelve_layers();
  config.n_layer = 1, config.n_head = 3, config.n_kv_head = 1, config.mlp = Mlp::swiglu, config.n_hidden = 10;
  const std::vector<ParameterRow> base = parameter_table(config),
                                  rows = parameter_table(config, lora({"q_proj", "v_proj", "down_proj"}));
  ASSERT_EQ(rows.size(), base.size() + 4);
  for (size_t i = 0; i < base.size(); ++i) {
    EXPECT_EQ(rows[i].name, base[i].name);
    EXPECT_FALSE(rows[i].is_trained) << rows[i].name;
  }
  const std::vector<ParameterRow> adapters = adapter_rows(rows);
  ASSERT_EQ(adapters.size(), 4u);
  EXPECT_EQ(adapters[0].name, "transformer.h.0.attn.c_attn.lora_A");
  EXPECT_EQ(adapters[0].shape, (std::vector<int64_t>{4, 6})) << "queries and values have two rows each";
  EXPECT_EQ(adapters[1].shape, (std::vector<int64_t>{8, 2})) << "6 queries and 2 values";
  ASSERT_EQ(adapters[1].adapter->outputs.size(), 2u);
  EXPECT_EQ(adapters[1].adapter->outputs[1].begin, 8) << "behind 6 queries and 2 keys";
  EXPECT_EQ(adapters[2].name, "transformer.h.0.mlp.w2.lora_A");
  EXPECT_EQ(adapters[3].shape, (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(adapters[3].adapter->scale, 2) << "alpha is twice the rank";
  EXPECT_EQ(trained_count(rows), 4 * 6 + 8 * 2 + 2 * 10 + 6 * 2);
  EXPECT_EQ(first_trained_layer(rows), 0);
}

TEST(Lora, TargetsThatNameNothingAreRefused) {
  const ModelConfig config = twelve_layers();
  EXPECT_EQ(adapter_rows(parameter_table(config, lora({"all-linear"}))).size(), 2u * 4 * 12);
  EXPECT_ERROR(require_tunable(config, lora({"gate_proj"})), ExitCode::config,
               "training.lora_targets: gate_proj names no product of this model; there are all-linear, q_proj, k_proj, "
               "v_proj, o_proj, up_proj, down_proj");
  EXPECT_ERROR(require_tunable(config, lora({})), ExitCode::config,
               "names no product, so that nothing would be learned");
}

std::set<std::string> trained_whole(const std::vector<ParameterRow>& rows) {
  std::set<std::string> names;
  for (const ParameterRow& row : rows)
    if (is_trained_whole(row)) names.insert(row.name);
  return names;
}

TEST(Lora, WhatIsTrainedWholeIsNamedByAKindOrAPattern) {
  ModelConfig config = twelve_layers();
  EXPECT_EQ(trained_whole(parameter_table(config, lora({"all-linear"}))), std::set<std::string>{});
  EXPECT_EQ(trained_whole(parameter_table(config, lora({"all-linear"}, {"embeddings", "ln_f.bias"}))),
            (std::set<std::string>{"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.bias"}));
  EXPECT_EQ(trained_whole(parameter_table(config, lora({"all-linear"}, {"norms"}))).size(), 2u * (2 * 12 + 1));
  EXPECT_EQ(trained_whole(parameter_table(config, lora({"q_proj"}, {"h.3.mlp"}))).size(), 4u);
  EXPECT_EQ(trained_whole(parameter_table(config, lora({"q_proj"}, {"lm_head"}))),
            std::set<std::string>{"transformer.wte.weight"})
      << "tied";
  config.tie_weights = false;
  EXPECT_EQ(trained_whole(parameter_table(config, lora({"q_proj"}, {"lm_head"}))),
            std::set<std::string>{"lm_head.weight"});
}

TEST(Lora, WhatIsTrainedWholeIsNotKeptInFewBits) {
  TuningConfig tuning = lora({"q_proj"}, {"wte", "h.1.mlp.c_fc"});
  tuning.lora.base = BaseType::int4;
  for (const ParameterRow& row : parameter_table(twelve_layers(), tuning)) {
    const bool is_packed = is_product_matrix(row) && !row.adapter && row.name != "transformer.wte.weight" &&
                           row.name != "transformer.h.1.mlp.c_fc.weight";
    EXPECT_EQ(row.is_narrow(), is_packed) << row.name;
  }
}

TEST(Lora, WhatIsTrainedWholeHasNoAdapters) {
  const ModelConfig config = twelve_layers();
  for (const char* pattern : {"h.0.attn", "h.0.attn.c_attn.bias"})
    EXPECT_ERROR(require_tunable(config, lora({"q_proj"}, {pattern})), ExitCode::config,
                 std::string("training.lora_also_train: ") + pattern + " names 'transformer.h.0.attn.c_attn.");
  EXPECT_ERROR(
      require_tunable(config, lora({"q_proj"}, {"norm"})), ExitCode::config,
      "training.lora_also_train: norm names no parameter of this model; there are embeddings, norms, wte, wpe, h.0-11, "
      "ln_f");
}

}  // namespace
}  // namespace gpt::layout
