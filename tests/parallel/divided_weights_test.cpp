// Weights of blocks are there while their block computes, and no longer.
#include "gpt/parallel/divided_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "distributed/local_group.h"
#include "gpt/config/model_config.h"
#include "gpt/layout/cut.h"
#include "gpt/model/gpt.h"
#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/operator_sets.h"
#include "support/expect_error.h"

namespace gpt::parallel {
namespace {

ModelConfig three_blocks() {
  ModelConfig config;
  config.n_layer = 3, config.n_head = 2, config.n_embd = 32, config.block_size = 8, config.vocab_size = 100;
  return config;
}

Division division_of(const distributed::Group& group) {
  DistributedConfig config;
  config.zero = 3;
  return {group.mesh(), config};
}

ops::SharedOperators operators_of(const Division& division) {
  return model::tensor_parallel(ops::fused_operators(), division.tensor, three_blocks());
}

// As a run makes it.
struct DividedModel {
  explicit DividedModel(const distributed::Group& group, const parameters::ParameterTypes& types = {},
                        uint64_t seed = 7)
      : division(division_of(group)), model(make(division, types, seed)) {
    model.layer_weights()->values_changed();
  }

  static model::GPT make(const Division& division, const parameters::ParameterTypes& types, uint64_t seed) {
    const std::vector<layout::ParameterRow> rows =
        layout::cut(layout::parameter_table(three_blocks()), three_blocks(), division.part());
    parameters::Parameters parameters(rows, at::kCPU, types, division.values(rows, layout::flat_layout(rows)));
    parameters.draw(seed);
    model::GPT model(three_blocks(), parameters, operators_of(division), division.part(), rows);
    model.set_layer_weights(std::make_shared<DividedWeights>(parameters, division));
    return model;
  }

  parameters::Parameter of_block(int64_t layer) const {
    return model.parameters().weight(layout::ParameterRole::mlp_in, layer);
  }

  Division division;
  model::GPT model;
};

// No constant: LibTorch must not begin to compute before main() does.
at::Tensor ids() { return at::arange(16).view({2, 8}); }

bool has_data(const at::Tensor& x) { return x.storage().data() != nullptr; }

TEST(DividedWeights, AModelOfPartsIsThatOfTheSameSeed) {
  for (const parameters::ParameterTypes types :
       {parameters::ParameterTypes{}, parameters::ParameterTypes{.compute = at::kBFloat16},
        parameters::ParameterTypes{.compute = at::kBFloat16, .has_master = false}}) {
    const model::GPT whole(three_blocks(), at::kCPU, 7, types);
    const at::NoGradGuard no_grad;
    const at::Tensor expected = whole.forward(ids());
    test::in_ranks(3, [&](const distributed::Group& group) {
      const DividedModel divided(group, types);
      const at::NoGradGuard here;
      for (int pass = 0; pass < 2; ++pass) EXPECT_TRUE(at::equal(divided.model.forward(ids()), expected));
      EXPECT_LT(divided.model.parameters().value_bytes(), whole.parameters().value_bytes());
    });
  }
}

// Who keeps a tensor finds no data in it; who keeps an address finds values that are no numbers. Also where a block is a part of one.
class ReleasedWeights : public testing::TestWithParam<int64_t> {};

TEST_P(ReleasedWeights, AreGoneAndSpoiled) {
  test::in_ranks(2 * GetParam(), [](distributed::Group& group) {
    group.arrange(GetParam());
    const DividedModel divided(group);
    model::LayerWeights& weights = *divided.model.layer_weights();
    EXPECT_FALSE(has_data(divided.of_block(0).value()));
    weights.before_forward(0);
    const at::Tensor kept = divided.of_block(0).value();
    ASSERT_TRUE(has_data(kept));
    EXPECT_FALSE(has_data(divided.of_block(1).value())) << "it is on its way";
    const auto* const address = kept.const_data_ptr<float>();
    EXPECT_TRUE(std::isfinite(kept.abs().sum().item<float>()));
    weights.before_forward(1);  // whose weights, and those of block 2, need the memory
    EXPECT_FALSE(has_data(kept));
    EXPECT_THROW((void)kept.const_data_ptr<float>(), c10::Error);
    EXPECT_TRUE(has_data(divided.of_block(1).value()));
    weights.before_forward(2);
    const auto* const released = divided.of_block(2).value().const_data_ptr<float>();
    EXPECT_NE(released, nullptr);
    weights.values_changed();
    EXPECT_TRUE(std::isnan(address[0]) || std::isnan(released[0])) << "no weights are left";
    for (int64_t layer = 0; layer < 3; ++layer) EXPECT_FALSE(has_data(divided.of_block(layer).value()));
  });
}

INSTANTIATE_TEST_SUITE_P(OfLayersIn, ReleasedWeights, testing::Values(1, 2),
                         [](const auto& test) { return fmt::format("{}_parts", test.param); });

// The gradients of a backward pass in which each block's memory has been another's in between.
TEST(DividedWeights, OperatorsAskForWeightsAgainInTheBackwardPass) {
  model::GPT whole(three_blocks(), at::kCPU, 7);
  whole.loss(ids(), ids()).backward();
  test::in_ranks(2, [&](const distributed::Group& group) {
    for (const auto level : {GradientCheckpointing::none, GradientCheckpointing::norm, GradientCheckpointing::selective,
                             GradientCheckpointing::block}) {
      DividedModel divided(group);
      divided.model.set_gradient_checkpointing(level);
      std::vector<int64_t> passed;
      divided.model.loss(ids(), ids(), {.layer_done = [&passed](int64_t layer) { passed.push_back(layer); }})
          .backward();
      EXPECT_EQ(passed, (std::vector<int64_t>{3, 2, 1, 0}));
      for (size_t i = 0; i < whole.parameters().rows().size(); ++i)
        EXPECT_TRUE(at::equal(divided.model.parameters()[i].gradient(), whole.parameters()[i].gradient()))
            << whole.parameters().rows()[i].name;
    }
  });
}

// The same where two processes divide each layer, and two such groups the parts.
TEST(DividedWeights, PartsOfLayersComeTogetherForEachPass) {
  test::in_ranks(4, [](distributed::Group& group) {
    group.arrange(2);
    const Division division = division_of(group);
    model::GPT whole(three_blocks(), at::kCPU, 7, {}, {}, division.part());
    whole.set_operators(operators_of(division));
    const at::Tensor expected = whole.loss(ids(), ids());
    expected.backward();
    for (const auto level :
         {GradientCheckpointing::none, GradientCheckpointing::selective, GradientCheckpointing::block}) {
      DividedModel divided(group);
      divided.model.set_gradient_checkpointing(level);
      EXPECT_LT(divided.model.parameters().value_bytes(), whole.parameters().value_bytes());
      const at::Tensor loss = divided.model.loss(ids(), ids());
      loss.backward();
      EXPECT_TRUE(at::equal(loss, expected));
      for (size_t i = 0; i < whole.parameters().rows().size(); ++i)
        EXPECT_TRUE(at::equal(divided.model.parameters()[i].gradient(), whole.parameters()[i].gradient()))
            << whole.parameters().rows()[i].name;
    }
  });
}

TEST(DividedWeights, ProcessesMakeAsManyPassesApartAsTheyWant) {
  const model::GPT whole(three_blocks(), at::kCPU, 7);
  const at::NoGradGuard no_grad;
  const at::Tensor expected = whole.forward(ids());
  test::in_ranks(3, [&](const distributed::Group& group) {
    const DividedModel divided(group);
    const at::NoGradGuard here;
    const int64_t passes = 2 * group.ranks().rank;
    model::work_apart(divided.model, [&] {
      for (int64_t pass = 0; pass < passes; ++pass) EXPECT_TRUE(at::equal(divided.model.forward(ids()), expected));
    });
    EXPECT_TRUE(at::equal(divided.model.forward(ids()), expected)) << "and then together again";
  });
}

TEST(DividedWeights, AnErrorBetweenPassesApartLeavesNobodyWaiting) {
  test::in_ranks(2, [](const distributed::Group& group) {
    const DividedModel divided(group);
    const at::NoGradGuard no_grad;
    const auto work = [&] {
      for (int pass = 0; pass < 3; ++pass) {
        (void)divided.model.forward(ids());
        if (group.is_first() && pass == 1) throw std::runtime_error("no room");
      }
    };
    if (group.is_first()) {
      EXPECT_THROW(model::work_apart(divided.model, work), std::runtime_error);
    } else {
      model::work_apart(divided.model, work);
    }
    (void)divided.model.forward(ids());
  });
}

}  // namespace
}  // namespace gpt::parallel
