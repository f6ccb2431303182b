// Rows of several conversations whose targets count in part: each conversation is what it would be alone, against plain operators over its
// logits in float64.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpt/data/packed_rows.h"
#include "gpt/model/compile.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "support/conversations.h"
#include "support/dropout_at.h"
#include "support/model_forms.h"
#include "support/tolerance.h"

namespace gpt::model {
namespace {

constexpr int64_t kChatVocab = 101, kRowLength = 32;

GPT conversing_model(const ModelConfig& config) {
  GPT model(config, at::kCPU, 1);
  const at::NoGradGuard no_grad;
  for (const auto& [name, value] : model.parameters().values())
    if (value.dim() == 2) value.mul_(5);  // or attention is nearly uniform
  return model;
}

struct PackedBatch {
  data::Tokens tokens;
  data::PackedRows rows;
  at::Tensor inputs, targets, starts;

  explicit PackedBatch(const std::vector<int64_t>& lengths, uint32_t seed = 1)
      : tokens(test::conversations(lengths, kChatVocab, seed).tokens(kChatVocab)), rows(tokens, kRowLength, true, 1) {
    std::vector<data::SegmentRow> all;
    for (int64_t row = 0; row < rows.size(); ++row) all.push_back(rows.row(row));
    const at::Tensor together = at::empty({3, rows.size(), kRowLength}, at::kLong);
    const auto plane = [&](int64_t i) { return together[i].mutable_data_ptr<int64_t>(); };
    data::write_rows(tokens, all, kRowLength, {plane(0), plane(1), plane(2)});
    inputs = together[0], targets = together[1], starts = together[2].to(at::kInt);
  }
};

const std::vector<int64_t> kLengths{20, 14, 9, 9, 25, 6, 12};

// Adds the gradients of the mean over all targets that count to the model's, and returns it.
double learned_alone(const GPT& model, const PackedBatch& batch) {
  double mean = 0;
  for (int64_t row = 0; row < batch.rows.size(); ++row) {
    for (const auto& [start, length, learned] : batch.rows.row(row)) {
      std::vector<int64_t> ids, places, targets;
      for (int64_t i = 0; i < length; ++i) {
        ids.push_back(batch.tokens[start + i]);
        if ((batch.tokens.mark(start + i + 1) & data::TokenMark::kLearned) == 0) continue;
        places.push_back(i), targets.push_back(batch.tokens[start + i + 1]);
      }
      const at::Tensor logits = model.forward(at::tensor(ids).unsqueeze(0)).select(0, 0).to(at::kDouble);
      const at::Tensor of_targets =
          at::log_softmax(logits, 1).index_select(0, at::tensor(places)).gather(1, at::tensor(targets).unsqueeze(1));
      const at::Tensor part = -of_targets.sum() / static_cast<double>(batch.rows.learned());
      part.backward();
      mean += part.item<double>();
    }
  }
  return mean;
}

std::vector<at::Tensor> gradients_taken(const GPT& model) {
  std::vector<at::Tensor> result;
  for (const auto& [name, gradient] : model.parameters().gradients()) result.push_back(gradient.clone());
  model.parameters().clear_gradients();
  return result;
}

class ConversationsOfGPT : public testing::TestWithParam<test::ModelForm> {
 protected:
  void SetUp() override { (void)select_operators({}, at::kCPU); }  // allows LibTorch every kernel
};

TEST_P(ConversationsOfGPT, SideBySideTheyTeachWhatEachTeachesAlone) {
  const PackedBatch batch(kLengths);
  ASSERT_LT(batch.rows.size(), std::ssize(kLengths));
  GPT model = conversing_model(config_of(GetParam()));
  model.set_operators(ops::aten_operators());
  const double expected = learned_alone(model, batch);
  const std::vector<at::Tensor> alone = gradients_taken(model);
  constexpr int64_t kRoundings = 5000;
  const double weight = static_cast<double>(batch.targets.numel()) / static_cast<double>(batch.rows.learned());
  const at::Tensor upstream = at::full({}, weight, at::kFloat);
  for (const bool ours : {true, false}) {
    model.set_operators(ours ? ops::fused_operators() : ops::aten_operators());
    for (const auto level : {GradientCheckpointing::none, GradientCheckpointing::block}) {
      model.set_gradient_checkpointing(level);
      const at::Tensor loss =
          model.loss(batch.inputs, batch.targets, {.upstream = upstream, .document_starts = batch.starts});
      loss.backward(upstream);
      EXPECT_NEAR(loss.item<double>() * weight, expected, test::tolerance(at::kFloat, kRoundings, expected)) << ours;
      const std::vector<at::Tensor> together = gradients_taken(model);
      for (size_t i = 0; i < alone.size(); ++i) {
        const double largest = alone[i].abs().max().item<double>();
        EXPECT_LE((together[i] - alone[i]).abs().max().item<double>(), test::tolerance(at::kFloat, kRoundings, largest))
            << model.parameters().rows()[i].name << ", ours " << ours;
      }
    }
  }
}

TEST_P(ConversationsOfGPT, TokenLossesAreThoseOfTargetsThatCount) {
  const PackedBatch batch(kLengths);
  GPT model = conversing_model(config_of(GetParam()));
  const at::Tensor losses = model.token_losses(batch.inputs, batch.targets, batch.starts), masked = batch.targets < 0;
  EXPECT_EQ(losses.masked_select(masked).abs().max().item<double>(), 0);
  EXPECT_GT(losses.masked_select(masked.logical_not()).min().item<double>(), 0);
  const double expected = learned_alone(model, batch);
  model.parameters().clear_gradients();
  EXPECT_NEAR(losses.sum(at::kDouble).item<double>() / static_cast<double>(batch.rows.learned()), expected,
              test::tolerance(at::kFloat, 5000, expected));
  // Without their borders they would see each other.
  const at::Tensor joined = model.token_losses(batch.inputs, batch.targets);
  EXPECT_GT((joined - losses).abs().max().item<double>(), 0.1);
}

TEST_P(ConversationsOfGPT, ABatchWithoutATargetTeachesNothing) {
  const PackedBatch batch(kLengths);
  GPT model = conversing_model(config_of(GetParam()));
  for (const bool ours : {true, false}) {
    model.set_operators(ours ? ops::fused_operators() : ops::aten_operators());
    for (const double smoothing : {0.0, 0.1}) {
      const at::Tensor loss = model.loss(batch.inputs, at::full_like(batch.targets, ops::kMaskedTarget),
                                         {.label_smoothing = smoothing, .document_starts = batch.starts});
      EXPECT_EQ(loss.item<double>(), 0);
      loss.backward();
      for (const at::Tensor& gradient : gradients_taken(model)) EXPECT_EQ(gradient.abs().max().item<double>(), 0);
    }
  }
}

// The mask of what is dropped out follows from the place alone, whether positions begin anew or not.
TEST_P(ConversationsOfGPT, StartsAtTheBeginningOfRowsChangeNothing) {
  ModelConfig config = config_of(GetParam());
  config.dropout = 0.2;
  GPT model = conversing_model(config);
  model.train(true);
  const PackedBatch batch(kLengths);
  const at::Tensor place = test::dropout_at(at::kCPU, 0, 7, 3).place;
  const auto gradients = [&](const at::Tensor& starts) {
    const at::Tensor loss =
        model.loss(batch.inputs, batch.targets, {.dropout_place = place, .document_starts = starts});
    loss.backward();
    std::vector<at::Tensor> all = gradients_taken(model);
    all.push_back(loss.detach());
    return all;
  };
  const auto without = gradients({}), with = gradients(at::zeros_like(batch.starts));
  for (size_t i = 0; i < without.size(); ++i) {
    const double largest = without[i].abs().max().item<double>();
    EXPECT_LE((with[i] - without[i]).abs().max().item<double>(), test::tolerance(at::kFloat, 500, largest)) << i;
  }
}

TEST(ConversationsOfAModelWithChosenBlocks, AreRefused) {
  const PackedBatch batch(kLengths);
  ModelConfig config = test::config_of({"llama", Mlp::swiglu, Norm::rmsnorm, Position::rope, false, false});
  config.block_size = 256, config.attention = AttentionForm::blocks;
  config.attention_block = 64, config.attention_top_blocks = 1;
  ASSERT_GT(config.top_blocks(), 0);
  const GPT model(config, at::kCPU, 1);
  EXPECT_THROW(model.token_losses(batch.inputs, batch.targets, batch.starts), c10::Error);
  EXPECT_NO_THROW(model.token_losses(batch.inputs, batch.targets));
}

INSTANTIATE_TEST_SUITE_P(Forms, ConversationsOfGPT, test::model_forms(),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gpt::model
