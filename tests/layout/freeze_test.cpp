#include "gpt/layout/freeze.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/expect_error.h"

namespace gpt {
namespace {

ModelConfig twelve_layers() {
  ModelConfig config;
  config.n_layer = 12, config.n_head = 2, config.n_embd = 6, config.block_size = 4, config.vocab_size = 5;
  config.norm = Norm::layernorm, config.bias = true, config.position = Position::learned, config.mlp = Mlp::gelu;
  return config;
}

std::set<std::string> frozen(const ModelConfig& config, const std::vector<std::string>& patterns) {
  std::set<std::string> names;
  for (const ParameterRow& row : parameter_table(config, patterns))
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
  require_freezable(config, {"h.0-5", "wte"});
  for (const char* pattern : {"h.12", "h.0-", "h.5-2", "wt", "mlp", "h.0.attn.c_attn.weight.x", "", "h..attn", "."}) {
    EXPECT_ERROR(require_freezable(config, {"wte", pattern}), ExitCode::config,
                 std::string("training.freeze: ") + pattern +
                     " names no parameter of this model; there are wte, wpe, h.0-11, ln_f");
  }
  EXPECT_ERROR(require_freezable(config, {"wte", "wpe", "h", "ln_f"}), ExitCode::config, "names all parameters");
}

TEST(Freeze, WhatIsNotTrainedLiesBehindAllOthers) {
  const ModelConfig config = twelve_layers();
  const std::vector<ParameterRow> rows = parameter_table(config, {"wte", "h.*.mlp", "ln_f.weight"});
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
    return first_trained_layer(parameter_table(config, patterns));
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
    return flops_per_token(config, parameter_table(config, frozen));
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

}  // namespace
}  // namespace gpt
