#include "gpt/config/model_config.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpt {
namespace {

TEST(ModelConfig, HiddenWidthFollowsTheMlp) {
  ModelConfig c;
  c.n_embd = 384;
  EXPECT_EQ(c.hidden(), 1024);  // 8/3 * 384
  c.n_embd = 128;
  EXPECT_EQ(c.hidden(), 384);  // 341.3 rounded up
  c.n_embd = 4;
  EXPECT_EQ(c.hidden(), 64);
  c.n_embd = 25;
  EXPECT_EQ(c.hidden(), 128);  // 66.7
  c.mlp = Mlp::gelu;
  EXPECT_EQ(c.hidden(), 100);
  c.n_hidden = 7;
  EXPECT_EQ(c.hidden(), 7);
}

TEST(ModelConfig, HeadsAreAboutSixtyFourWide) {
  const auto head_dim = [](int64_t n_embd, std::optional<int64_t> n_kv_head = {}) {
    ModelConfig c;
    c.n_embd = n_embd;
    c.n_kv_head = n_kv_head;
    EXPECT_EQ(c.heads() * c.head_dim(), n_embd);
    EXPECT_EQ(c.heads() % c.kv_heads(), 0);
    return c.head_dim();
  };
  EXPECT_EQ(ModelConfig{}.heads(), 6);
  for (const int64_t n_embd : {64, 384, 1024, 1600, 65536}) EXPECT_EQ(head_dim(n_embd), 64);
  EXPECT_EQ(head_dim(16), 16);
  EXPECT_EQ(head_dim(96), 48);
  EXPECT_EQ(head_dim(100), 50);
  EXPECT_EQ(head_dim(2 * 97), 194);  // 2 and 194 divide it
  EXPECT_EQ(head_dim(97), 97);       // nothing even divides it
  EXPECT_EQ(head_dim(384, 4), 48);   // 6 heads would not share out 4
  EXPECT_EQ(head_dim(1024, 4), 64);
  EXPECT_EQ(head_dim(1024, 1), 64);
}

TEST(ModelConfig, HeadsMayHaveAWidthOfTheirOwn) {
  ModelConfig c;
  c.n_embd = 96, c.n_head = 5, c.n_head_dim = 16;
  EXPECT_EQ(c.head_dim(), 16);
  EXPECT_EQ(c.attention_width(), 80);
  c.n_head.reset();
  EXPECT_EQ(c.heads(), 6);
  c.n_head_dim = 128;
  EXPECT_EQ(c.heads(), 1);
  c.n_head_dim.reset();
  EXPECT_EQ(c.attention_width(), 96);
}

TEST(ModelConfig, WindowsFollowThePatternButForTheLastLayer) {
  ModelConfig c;
  c.n_layer = 8, c.block_size = 256;
  const auto windows = [&c] {
    std::vector<int64_t> result;
    for (int64_t layer = 0; layer < c.n_layer; ++layer) result.push_back(c.window(layer));
    return result;
  };
  EXPECT_EQ(windows(), std::vector<int64_t>(8, 0));
  c.attention_window = 64;
  EXPECT_EQ(windows(), (std::vector<int64_t>{64, 64, 64, 0, 64, 64, 64, 0}));
  c.window_pattern = "S";
  EXPECT_EQ(windows(), (std::vector<int64_t>{64, 64, 64, 64, 64, 64, 64, 0}));
  EXPECT_EQ(c.windowed_layers(), 7);
  c.window_pattern = "LLS";
  EXPECT_EQ(windows(), (std::vector<int64_t>{0, 0, 64, 0, 0, 64, 0, 0}));
  c.attention_window = 256;
  EXPECT_EQ(c.windowed_layers(), 0) << "it reaches over the whole sequence";
}

TEST(ModelConfig, TheShareOfAWindowIsThatOfItsScores) {
  for (const int64_t T : {1, 2, 7, 100}) {
    for (const int64_t window : {1, 2, 3, 50, 99, 100, 200}) {
      double all = 0, seen = 0;
      for (int64_t query = 0; query < T; ++query) {
        for (int64_t key = 0; key <= query; ++key) all += 1, seen += query - key < window ? 1 : 0;
      }
      EXPECT_NEAR(visible_share(T, window), seen / all, 1e-12) << T << " positions, window " << window;
    }
    EXPECT_EQ(visible_share(T, 0), 1);
  }
}

TEST(ModelConfig, TheShareOfBlocksIsThatOfTheirScores) {
  for (const int64_t T : {1, 5, 6, 24, 29, 100}) {
    for (const int64_t block : {1, 6, 64}) {
      for (const int64_t top : {1, 3, 50}) {
        int64_t seen = 0;
        for (int64_t query = 0; query < T; ++query) seen += query % block + 1 + block * std::min(top, query / block);
        EXPECT_DOUBLE_EQ(chosen_share(T, block, top), static_cast<double>(2 * seen) / static_cast<double>(T * (T + 1)))
            << T << " positions, " << top << " blocks of " << block;
      }
    }
    EXPECT_EQ(chosen_share(T, 64, 0), 1);
  }
}

TEST(ModelConfig, QueriesChooseWhereThereAreMoreBlocks) {
  ModelConfig c;
  c.block_size = 1024;
  EXPECT_EQ(c.top_blocks(), 0);
  EXPECT_EQ(c.visible_share(0), 1);
  c.attention = AttentionForm::blocks;
  EXPECT_EQ(c.top_blocks(), 4);
  EXPECT_EQ(c.visible_share(0), chosen_share(1024, 64, 4));
  c.attention_top_blocks = 15;
  EXPECT_EQ(c.top_blocks(), 0) << "the last query has 15 whole blocks before its own";
  c.block_size = 1025;
  EXPECT_EQ(c.top_blocks(), 15);
}

TEST(ModelConfig, VocabularyIsPadded) {
  ModelConfig c;
  c.vocab_size = 50257;
  EXPECT_EQ(c.padded_vocab(), 50304);
  c.vocab_size = 64;
  EXPECT_EQ(c.padded_vocab(), 64);
  c.vocab_size = 65;
  c.vocab_multiple = 1;
  EXPECT_EQ(c.padded_vocab(), 65);
}

TEST(ModelConfig, PresetsAreGpt2sSizes) {
  struct Size {
    Preset preset;
    int64_t n_layer, n_head, n_embd;
  };
  for (const Size size : {Size{Preset::gpt2_small, 12, 12, 768}, Size{Preset::gpt2_medium, 24, 16, 1024},
                          Size{Preset::gpt2_large, 36, 20, 1280}, Size{Preset::gpt2_xl, 48, 25, 1600}}) {
    ModelConfig c;
    c.preset = size.preset;
    c.n_hidden = 5;
    c.tie_weights = false;
    apply_preset(c);
    EXPECT_EQ(c.n_layer, size.n_layer);
    EXPECT_EQ(c.heads(), size.n_head);
    EXPECT_EQ(c.n_embd, size.n_embd);
    EXPECT_EQ(c.hidden(), 4 * size.n_embd);
    EXPECT_EQ(c.block_size, 1024);
    EXPECT_EQ(c.norm, Norm::layernorm);
    EXPECT_EQ(c.mlp, Mlp::gelu);
    EXPECT_EQ(c.position, Position::learned);
    EXPECT_TRUE(c.bias);
    EXPECT_TRUE(c.tie_weights);
  }
  ModelConfig c;
  c.preset = Preset::char_small;
  c.n_layer = 1;
  c.block_size = 8;
  apply_preset(c);
  EXPECT_EQ(c.n_layer, 6);
  EXPECT_EQ(c.n_embd, 384);
  EXPECT_EQ(c.block_size, 256);
  EXPECT_EQ(c.mlp, Mlp::swiglu);
}

}  // namespace
}  // namespace gpt
