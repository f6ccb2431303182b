#include "gpt/prune/amounts.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace gpt::prune {
namespace {

Amount share(double percent) { return {percent, /*is_share=*/true}; }
Amount number(double count) { return {count, /*is_share=*/false}; }

ModelConfig llama() {
  ModelConfig model;
  model.n_layer = 6, model.n_head = 8, model.n_kv_head = 4, model.n_embd = 64, model.n_hidden = 256;
  return model;
}

TEST(Amounts, AreSharesOrNumbers) {
  EXPECT_EQ(parse_amount("mlp", "25%").number, 25);
  EXPECT_TRUE(parse_amount("mlp", "12.5%").is_share);
  EXPECT_EQ(parse_amount("heads", "2").number, 2);
  EXPECT_FALSE(parse_amount("heads", "2").is_share);
  for (const char* wrong : {"", "%", "a", "25 %", "2.5", "-1", "-5%", "nan", "nan%", "inf", "1e30", "25%%", "0x10"})
    EXPECT_ERROR(parse_amount("mlp", wrong), ExitCode::config, "a share such as 25% or a whole number is needed");
  for (const char* all : {"100%", "120%"})
    EXPECT_ERROR(parse_amount("layers", all), ExitCode::config,
                 std::string("--layers ") + all + ": a share is less than 100%");
}

TEST(Amounts, SharesAreRoundedToWhatLeavesGoodWidths) {
  const ModelConfig model = llama();
  const auto neurons = [&](const Amount& amount) { return removal_from({.mlp = amount}, model).neurons; };
  EXPECT_EQ(neurons(share(25)), 64);
  EXPECT_EQ(neurons(share(30)), 64);   // 76.8
  EXPECT_EQ(neurons(share(1)), 32);    // not nothing
  EXPECT_EQ(neurons(share(99)), 224);  // not all
  EXPECT_EQ(neurons(number(77)), 77);
  ModelConfig odd = model;
  odd.n_hidden = 100;
  EXPECT_EQ(removal_from({.mlp = share(33)}, odd).neurons, 33);
  odd.n_hidden = 32;
  EXPECT_EQ(removal_from({.mlp = share(25)}, odd).neurons, 8);
  EXPECT_EQ(removal_from({.heads = share(25)}, model).heads, 2);
  EXPECT_EQ(removal_from({.heads = share(20)}, model).heads, 2);  // whole groups
  EXPECT_EQ(removal_from({.layers = share(34)}, model).layers, 2);
}

TEST(Amounts, SomethingIsLeft) {
  const ModelConfig model = llama();
  EXPECT_ERROR(removal_from({.mlp = number(256)}, model), ExitCode::config,
               "--mlp 256: each layer has 256 neurons, and at least one must be left");
  EXPECT_ERROR(removal_from({.heads = number(8)}, model), ExitCode::config,
               "--heads 8: each layer has 8 heads, and at least one must be left");
  EXPECT_ERROR(removal_from({.layers = number(7)}, model), ExitCode::config,
               "--layers 7: the model has 6 layers, and at least one must be left");
  ModelConfig one = model;
  one.n_layer = 1;
  EXPECT_ERROR(removal_from({.layers = share(10)}, one), ExitCode::config,
               "--layers 10%: the model has 1 layer, and at least one must be left");
}

TEST(Amounts, GroupedHeadsGoByGroupsOrEquallyFromEach) {
  ModelConfig model = llama();
  for (const int64_t heads : {2, 4, 6}) EXPECT_EQ(removal_from({.heads = number(heads)}, model).heads, heads);
  EXPECT_ERROR(
      removal_from({.heads = number(3)}, model), ExitCode::config,
      "--heads 3: the 8 heads of a layer share 4 key and value heads, so that either all 2 of a group go or equally "
      "many of each group; use 2 or 4");
  EXPECT_ERROR(removal_from({.heads = number(1)}, model), ExitCode::config, "use 2");
  EXPECT_ERROR(removal_from({.heads = number(7)}, model), ExitCode::config, "use 6");
  model.n_kv_head = 1;
  EXPECT_EQ(removal_from({.heads = number(3)}, model).heads, 3);
  model.n_kv_head.reset();
  EXPECT_EQ(removal_from({.heads = number(3)}, model).heads, 3);
  model.qk_norm = QkNorm::all;
  EXPECT_ERROR(removal_from({.heads = number(4)}, model), ExitCode::config,
               "--heads 4: the model normalizes all heads of a token together (model.qk_norm all)");
}

}  // namespace
}  // namespace gpt::prune
