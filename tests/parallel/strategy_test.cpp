// Every process begins the same sums in each update, whether or not it has a micro-batch that could tell of its layers.
#include "gpt/parallel/strategy.h"

#include <gtest/gtest.h>

#include <memory>

#include "parallel/quiet_communicator.h"

namespace gpt::parallel {
namespace {

class Counting : public test::QuietCommunicator {
 public:
  Counting() : QuietCommunicator(1, 2) {}
  void begin_sum(const at::Tensor&, at::ScalarType) override { ++begun; }

  int begun = 0;
};

ModelConfig model_of_two_layers() {
  ModelConfig config;
  config.n_layer = 2, config.n_head = 1, config.n_embd = 4, config.block_size = 4, config.vocab_size = 8;
  return config;
}

TEST(Strategy, EachUpdateSumsWholeGradientsOnce) {
  const auto ranks = std::make_shared<Counting>();
  model::GPT model(model_of_two_layers(), at::kCPU, 1);
  const auto strategy = make_strategy(model, Division(ranks, {}), TrainingConfig{}, /*is_recorded=*/false);
  constexpr int kLossAndGradients = 2;
  for (const bool has_last : {false, true, false, false, true, true}) {
    ranks->begun = 0;
    strategy->begin();
    if (has_last) {
      ASSERT_TRUE(strategy->lanes().begin_micro_batch());
      model.parameters().mark_gradients();
      const Strategy::LayerDone done = strategy->layer_done(/*is_last=*/true);
      strategy->begin_backward(/*is_last=*/true);
      EXPECT_EQ(ranks->begun, 1) << "the loss";
      for (int64_t layer = 2; layer >= 0; --layer) done(layer);
      strategy->end_backward();
    }
    strategy->sum();
    EXPECT_EQ(ranks->begun, kLossAndGradients);
  }
}

TEST(Strategy, NothingIsToldBeforeTheLastBackwardPass) {
  model::GPT model(model_of_two_layers(), at::kCPU, 1);
  TrainingConfig config;
  const Division division(std::make_shared<Counting>(), {});
  EXPECT_FALSE(make_strategy(model, division, config, /*is_recorded=*/false)->layer_done(/*is_last=*/false));
  EXPECT_FALSE(make_strategy(model, {}, config, /*is_recorded=*/false)->layer_done(/*is_last=*/true)) << "alone";
  config.execution.use_compile = false;
  EXPECT_FALSE(make_strategy(model, division, config, /*is_recorded=*/false)->layer_done(/*is_last=*/true));
}

}  // namespace
}  // namespace gpt::parallel
