// How blocks are divided among stages: as evenly as blocks, embedding and head allow, compared with all divisions that there are.
#include "gpt/layout/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>

#include "gpt/layout/cut.h"

namespace gpt::layout {
namespace {

ModelConfig model_of(int64_t layers, int64_t vocabulary) {
  ModelConfig model;
  model.n_layer = layers, model.n_embd = 64, model.n_head = 2, model.block_size = 32, model.vocab_size = vocabulary;
  return model;
}

double slowest(const ModelConfig& model, const std::vector<LayerSpan>& stages) {
  const std::vector<double> costs = stage_costs(model, stages);
  return *std::max_element(costs.begin(), costs.end());
}

// The cost of the slowest stage in the best of all divisions.
double least_slowest(const ModelConfig& model, int64_t stages) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<LayerSpan> spans;
  const std::function<void(int64_t)> go_on = [&](int64_t begin) {
    const int64_t left = stages - std::ssize(spans);
    if (left == 1) {
      spans.push_back({begin, model.n_layer});
      least = std::min(least, slowest(model, spans));
      return spans.pop_back();
    }
    for (int64_t end = begin + 1; end + left - 1 <= model.n_layer; ++end) {
      spans.push_back({begin, end});
      go_on(end);
      spans.pop_back();
    }
  };
  go_on(0);
  return least;
}

TEST(Stages, NoDivisionHasAFasterSlowestStage) {
  for (const int64_t vocabulary : {64, 640, 6400}) {
    for (const int64_t stages : {1, 2, 3, 4}) {
      ModelConfig model = model_of(9, vocabulary);
      model.attention_window = 8;  // so that blocks differ
      model.tie_weights = stages % 2 == 0;
      const std::vector<LayerSpan> spans = stages_of(model, stages);
      ASSERT_EQ(std::ssize(spans), stages);
      int64_t next = 0;
      for (const auto& [begin, end] : spans) {
        EXPECT_EQ(begin, std::exchange(next, end));
        EXPECT_LT(begin, end);
      }
      EXPECT_EQ(next, 9);
      EXPECT_LE(slowest(model, spans), least_slowest(model, stages) * (1 + 1e-9)) << vocabulary << " " << stages;
    }
  }
}

TEST(Stages, AreAtMostATenthAboveTheirMeanWhereBlocksAllowIt) {
  for (const int64_t stages : {2, 4, 8}) {
    const ModelConfig model = model_of(96, 640);
    const std::vector<double> costs = stage_costs(model, stages_of(model, stages));
    const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(stages);
    EXPECT_LE(*std::max_element(costs.begin(), costs.end()), 1.1 * mean) << stages;
  }
}

TEST(Stages, CostWhatTheModelDoes) {
  for (const bool is_tied : {false, true}) {
    ModelConfig model = model_of(6, 640);
    model.tie_weights = is_tied, model.attention_window = 8;
    const std::vector<double> costs = stage_costs(model, stages_of(model, 3));
    const double looked_up = 6.0 * static_cast<double>(model.n_embd);
    EXPECT_NEAR(std::accumulate(costs.begin(), costs.end(), 0.0) - looked_up, flops_per_token(model), 1);
  }
}

TEST(Stages, BlocksThatAreLeftOverGoToDifferentStages) {
  const std::vector<LayerSpan> spans = stages_of(model_of(14, 2), 4);
  for (const LayerSpan& span : spans) EXPECT_LE(std::abs(2 * span.count() - 7), 1);
}

// Each parameter belongs to one stage, but a tied table, which the first and the last one have.
TEST(Stages, HaveEveryParameterBetweenThem) {
  for (const bool is_tied : {false, true}) {
    ModelConfig model = model_of(5, 64);
    model.tie_weights = is_tied, model.position = Position::learned, model.norm = Norm::layernorm, model.bias = true;
    const std::vector<ParameterRow> all = parameter_table(model);
    std::vector<std::string> names;
    for (int64_t stage = 0; stage < 3; ++stage)
      for (const ParameterRow& row : cut(all, model, {.stage = stage, .stages = 3})) {
        EXPECT_FALSE(row.cut);
        if (stage == 2 && row.layer < 0) {
          EXPECT_TRUE(is_tied);
          EXPECT_EQ(row.role, ParameterRole::token_embedding);
          continue;
        }
        names.push_back(row.name);
      }
    ASSERT_EQ(names.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(names[i], all[i].name);
  }
}

}  // namespace
}  // namespace gpt::layout
