#include "gpt/parallel/divided_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/config/model_config.h"
#include "parallel/quiet_communicator.h"

namespace gpt::parallel {
namespace {

// The other process sends the same: remembers the lengths of spans, and lets parts arrive at finish().
class Mirror : public test::QuietCommunicator {
 public:
  Mirror() : QuietCommunicator(1, 2) {}
  void begin_sum(const at::Tensor&, at::ScalarType) override { FAIL() << "whole sums are not asked for"; }
  void begin_sum_of_part(const at::Tensor& x, at::ScalarType, const distributed::Arrival& arrival, int64_t) override {
    lengths.push_back(x.numel());
    under_way.emplace_back(x, arrival);
  }
  void finish() override {
    for (const auto& [x, arrival] : under_way) {
      const auto [begin, end] = distributed::part_of(x.numel(), rank(), size());
      const at::Tensor sum = 2 * x.slice(0, begin, end);
      arrival.adds ? arrival.values.add_(sum) : arrival.values.copy_(sum);
    }
    under_way.clear();
  }

  std::vector<int64_t> lengths;
  std::vector<std::pair<at::Tensor, distributed::Arrival>> under_way;
};

ModelConfig layers_of_a_segment_each() {
  ModelConfig config;
  config.n_layer = 4, config.n_head = 2, config.n_embd = 384, config.block_size = 8, config.vocab_size = 100;
  return config;
}

struct DividedGradientsTest : testing::Test {
  DividedGradientsTest() {
    DistributedConfig config;
    config.zero = 2;
    division = {ranks, config};
    divided.emplace(parameters, division);
  }

  // As a backward pass does, one layer after the other; the table, which is tied, has had something from the head already.
  void compute_round(double value) {
    const auto contribute = [&](const auto& takes_part) {
      for (size_t i = 0; i < parameters.rows().size(); ++i)
        if (takes_part(parameters.rows()[i]))
          parameters[i].add_to_gradient(at::full(parameters.rows()[i].shape, value));
    };
    contribute([](const layout::ParameterRow& row) { return !row.tied_name.empty(); });
    for (int64_t layer = 4; layer >= 0; --layer) {
      contribute([layer](const layout::ParameterRow& row) { return row.layer == layer; });
      const size_t before = ranks->lengths.size();
      divided->layer_done(layer);
      // The final norm goes with the last block. What is complete is on its way, and alone.
      EXPECT_EQ(ranks->lengths.size() - before,
                layer < 4
                    ? division.segments(parameters.rows(), parameters.layout())[static_cast<size_t>(3 - layer)].size()
                    : 0)
          << layer;
      EXPECT_EQ(ranks->under_way.size(), ranks->lengths.size() - before) << layer;
    }
    contribute([](const layout::ParameterRow& row) { return row.layer < 0; });
    divided->end_round(/*has_gradients=*/true);
    EXPECT_TRUE(ranks->under_way.empty());
  }

  std::shared_ptr<Mirror> ranks = std::make_shared<Mirror>();
  const parameters::Parameters parameters{layout::parameter_table(layers_of_a_segment_each()), at::kCPU};
  Division division;
  std::optional<DividedGradients> divided;
};

TEST_F(DividedGradientsTest, SegmentsOfWholeLayersAreSentAsSoonAsTheyAreComplete) {
  EXPECT_EQ(division.segments(parameters.rows(), parameters.layout()).size(), 5);  // four blocks, and the table
  divided->begin_update();
  compute_round(1);
  int64_t sent = 0;
  for (const int64_t length : ranks->lengths) sent += length;
  EXPECT_EQ(sent, parameters.layout().trained_size);
}

TEST_F(DividedGradientsTest, RoundsOfAllProcessesAddUp) {
  for (int update = 0; update < 2; ++update) {
    divided->begin_update();
    compute_round(1);
    compute_round(10);
    divided->finish();
    double sum = 0;
    int64_t own = 0;
    for (const layout::FlatSpan& span : division.spans(parameters.rows(), parameters.layout())) {
      const at::Tensor part = parameters.gradients_of(span);
      own += part.numel();
      EXPECT_LE(part.max().item<double>(), 2 * (1 + 10) + 2 * (1 + 10));  // the table's twice
      sum += part.eq(2 * (1 + 10)).sum().item<double>();
    }
    EXPECT_GT(sum, 0.49 * static_cast<double>(parameters.count() - 128 * 384)) << "half of what is not the table's";
    EXPECT_EQ(divided->bytes(), own * 4);
  }
}

TEST_F(DividedGradientsTest, AProcessWithoutAMicroBatchSendsZerosInTheSameStretches) {
  divided->begin_update();
  compute_round(1);
  const std::vector<int64_t> lengths = std::exchange(ranks->lengths, {});
  divided->end_round(/*has_gradients=*/false);
  EXPECT_EQ(ranks->lengths, lengths);
  divided->finish();
  for (const layout::FlatSpan& span : division.spans(parameters.rows(), parameters.layout()))
    EXPECT_LE(parameters.gradients_of(span).max().item<double>(), 4);
}

TEST_F(DividedGradientsTest, WhatAnAbandonedUpdateHasLeftIsForgotten) {
  divided->begin_update();
  parameters[0].add_to_gradient(at::full(parameters.rows()[0].shape, 100.0));
  divided->begin_update();
  compute_round(1);
  divided->finish();
  for (const layout::FlatSpan& span : division.spans(parameters.rows(), parameters.layout()))
    EXPECT_LE(parameters.gradients_of(span).max().item<double>(), 4);
}

TEST_F(DividedGradientsTest, AParameterThatNobodyContributedToIsAnError) {
  divided->begin_update();
  EXPECT_THROW(divided->layer_done(0), c10::Error);
}

}  // namespace
}  // namespace gpt::parallel
