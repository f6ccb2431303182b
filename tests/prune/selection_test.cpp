#include "gpt/prune/selection.h"

#include <gtest/gtest.h>

namespace gpt::prune {
namespace {

using Indices = std::vector<int64_t>;

Importance importance() {
  return {.neurons = {{3, 1, 2, 4}, {1, 2, 3, 4}, {4, 3, 2, 1}},
          .heads = {{9, 1, 2, 3}, {1, 1, 1, 5}, {4, 3, 2, 1}},
          .layers = {0.5, 0.1, 0.2}};
}

ModelConfig model(int64_t kv_heads) {
  ModelConfig config;
  config.n_layer = 3, config.n_head = 4, config.n_kv_head = kv_heads, config.n_embd = 8, config.n_hidden = 4;
  return config;
}

TEST(Selection, KeepsTheMostImportantInTheirOrder) {
  const auto kept = most_important(importance(), {.neurons = 2, .heads = 1, .layers = 1}, model(4));
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].layer, 0);
  EXPECT_EQ(kept[0].neurons, (Indices{0, 3}));
  EXPECT_EQ(kept[0].heads, (Indices{0, 2, 3}));
  EXPECT_EQ(kept[0].kv_heads, kept[0].heads);
  EXPECT_EQ(kept[1].layer, 2);
  EXPECT_EQ(kept[1].neurons, (Indices{0, 1}));
  EXPECT_EQ(kept[1].heads, (Indices{0, 1, 2}));
}

TEST(Selection, GroupsGoTogether) {
  const auto kept = most_important(importance(), {.heads = 2}, model(2));
  EXPECT_EQ(kept[0].kv_heads, Indices{0});  // 9 + 1 against 2 + 3
  EXPECT_EQ(kept[0].heads, (Indices{0, 1}));
  EXPECT_EQ(kept[1].kv_heads, Indices{1});
  EXPECT_EQ(kept[1].heads, (Indices{2, 3}));
}

TEST(Selection, OrEquallyManyQueriesOfEachGroup) {
  const auto kept = most_important(importance(), {.heads = 1}, model(1));
  EXPECT_EQ(kept[0].kv_heads, Indices{0});
  EXPECT_EQ(kept[0].heads, (Indices{0, 2, 3}));
  ModelConfig wide = model(2);
  wide.n_head = 6;
  Importance of_six = importance();
  for (auto& heads : of_six.heads) heads = {3, 1, 2, 1, 2, 3};
  const auto even = most_important(of_six, {.heads = 2}, wide);
  EXPECT_EQ(even[2].kv_heads, (Indices{0, 1}));
  EXPECT_EQ(even[2].heads, (Indices{0, 2, 4, 5}));
}

TEST(Selection, OfEqualOnesTheFirstStay) {
  EXPECT_EQ(most_important(importance(), {.heads = 2}, model(4))[1].heads, (Indices{0, 3}));
}

}  // namespace
}  // namespace gpt::prune
