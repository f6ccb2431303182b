// A model whose attention stays within documents: what is in one does not reach another, and each is what it would be alone.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "gpt/model/compile.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "support/cached_batch.h"
#include "support/dropout_at.h"
#include "support/model_forms.h"
#include "support/tolerance.h"

namespace gpt::model {
namespace {

constexpr int64_t kSeparator = 100, kRows = 2, kLength = 32;  // of 101 tokens

// The first tokens of documents, by row; the first row begins within one, whose beginning is not there.
const std::vector<std::vector<int64_t>> kBegins{{5, 6, 21}, {0, 13}};

// (2, 32), of which only documents begin with the separator.
at::Tensor some_ids(uint64_t seed, int64_t tokens = kSeparator) {
  at::Tensor ids =
      at::randint(tokens, {kRows, kLength}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kLong));
  for (int64_t row = 0; row < kRows; ++row)
    for (const int64_t begin : kBegins[static_cast<size_t>(row)]) ids[row][begin] = kSeparator;
  return ids;
}

// With weights that are large enough for attention to be far from uniform.
GPT some_model(const ModelConfig& config) {
  GPT model(config, at::kCPU, 1);
  const at::NoGradGuard no_grad;
  for (const auto& [name, value] : model.parameters().values())
    if (value.dim() == 2) value.mul_(5);
  model.set_document_separator(kSeparator);
  return model;
}

std::vector<at::Tensor> taken_gradients(const GPT& model) {
  std::vector<at::Tensor> result;
  for (const auto& [name, gradient] : model.parameters().gradients()) result.push_back(gradient.clone());
  model.parameters().clear_gradients();
  return result;
}

class DocumentsOfGPT : public testing::TestWithParam<test::ModelForm> {
 protected:
  void SetUp() override { (void)select_operators({}, at::kCPU); }  // allows LibTorch every kernel
};

TEST_P(DocumentsOfGPT, OtherTokensInOneChangeNoBitOfTheLossesOfAnother) {
  GPT model = some_model(config_of(GetParam()));
  const at::Tensor ids = some_ids(1), targets = some_ids(2);
  const at::Tensor before = model.token_losses(ids, targets);
  at::Tensor other = ids.clone();
  for (int64_t t = 7; t < 21; ++t) other[0][t] = (ids[0][t] + 1) % kSeparator;  // all of the third
  const at::Tensor after = model.token_losses(other, targets), same = before == after;
  EXPECT_TRUE(same[1].all().item<bool>());
  EXPECT_TRUE(same[0].narrow(0, 0, 7).all().item<bool>()) << "its separator still sees nothing else";
  EXPECT_TRUE(same[0].narrow(0, 21, kLength - 21).all().item<bool>());
  EXPECT_FALSE(same[0].narrow(0, 7, 14).any().item<bool>());
  model.set_document_separator(std::nullopt);
  EXPECT_FALSE((model.token_losses(ids, targets) == before)[0].narrow(0, 21, 11).any().item<bool>());
}

// The rows of an embedding that is not the head's get gradients of the documents that they occur in.
TEST(DocumentsOfAnUntiedGPT, OtherTokensInOneChangeNoBitOfTheGradientsOfAnother) {
  const test::ModelForm untied{"untied", Mlp::swiglu, Norm::rmsnorm, Position::rope, false, false};
  for (const auto level : {GradientCheckpointing::none, GradientCheckpointing::block}) {
    GPT model = some_model(config_of(untied));
    model.set_gradient_checkpointing(level);
    at::Tensor ids = some_ids(1, 40);
    const at::Tensor targets = some_ids(2);
    const auto gradient_of_embedding = [&](int64_t first) {
      for (int64_t t = 7; t < 21; ++t) ids[0][t] = first + t;  // tokens that occur nowhere else
      model.loss(ids, targets).backward();
      const at::Tensor gradient =
          model.parameters().weight(layout::ParameterRole::token_embedding, -1).gradient().clone();
      model.parameters().clear_gradients();
      return gradient;
    };
    const at::Tensor before = gradient_of_embedding(40), after = gradient_of_embedding(70);
    EXPECT_TRUE(at::equal(before.narrow(0, 0, 40), after.narrow(0, 0, 40)));
    EXPECT_FALSE(at::equal(before[50], after[80]));
  }
}

// Rotary positions are differences of positions, so that documents need not begin at 0. Learned ones go on across documents.
TEST_P(DocumentsOfGPT, EachIsWhatItWouldBeAlone) {
  const ModelConfig config = config_of(GetParam());
  GPT model = some_model(config);
  const at::Tensor ids = some_ids(1), targets = some_ids(2);
  const at::Tensor losses = model.token_losses(ids, targets);
  model.set_document_separator(std::nullopt);
  const at::Tensor mixed = model.token_losses(ids, targets);
  // Both sides round, and the angles of large positions too.
  const int64_t roundings =
      2 * config.n_layer * (5 * config.n_embd + config.head_dim() + config.block_size + config.hidden());
  const double bound = test::tolerance(at::kFloat, roundings, losses.max().item<double>());
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<int64_t> borders = kBegins[static_cast<size_t>(row)];
    if (borders[0] > 0) borders.insert(borders.begin(), 0);
    borders.push_back(kLength);
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      const int64_t begin = borders[i], count = borders[i + 1] - begin;
      const auto document = [&](const at::Tensor& x) { return x.narrow(0, row, 1).narrow(1, begin, count); };
      const double difference =
          (document(losses) - model.token_losses(document(ids), document(targets))).abs().max().item<double>();
      if (config.position == Position::rope || begin == 0) {
        EXPECT_LE(difference, bound) << row << ", " << begin;
      } else {
        EXPECT_GT(difference, 10 * bound) << row << ", " << begin;
      }
    }
  }
  EXPECT_GT((mixed - losses).abs().max().item<double>(), 10 * bound) << "or nothing is shown";
}

TEST_P(DocumentsOfGPT, LibTorchsOperatorsAgree) {
  GPT model = some_model(config_of(GetParam()));
  const at::Tensor ids = some_ids(1), targets = some_ids(2);
  const at::Tensor loss = model.loss(ids, targets);
  loss.backward();
  const std::vector<at::Tensor> ours = taken_gradients(model);
  model.set_operators(ops::aten_operators());
  const at::Tensor reference = model.loss(ids, targets);
  reference.backward();
  const std::vector<at::Tensor> theirs = taken_gradients(model);
  constexpr int64_t kRoundings = 5000;
  EXPECT_NEAR(loss.item<double>(), reference.item<double>(), test::tolerance(at::kFloat, kRoundings, 10));
  for (size_t i = 0; i < ours.size(); ++i) {
    const double largest = theirs[i].abs().max().item<double>();
    EXPECT_LE((ours[i] - theirs[i]).abs().max().item<double>(), test::tolerance(at::kFloat, kRoundings, largest))
        << model.parameters().rows()[i].name;
  }
}

TEST_P(DocumentsOfGPT, GradientCheckpointingGivesTheSameBits) {
  using enum GradientCheckpointing;
  ModelConfig config = config_of(GetParam());
  config.dropout = 0.2, config.attention_window = 9, config.window_pattern = "S";
  for (const bool ours : {true, false}) {
    GPT model = some_model(config);
    model.set_operators(ours ? ops::fused_operators() : ops::aten_operators());
    model.train(true);
    const at::Tensor ids = some_ids(1), targets = some_ids(2), place = test::dropout_at(at::kCPU, 0, 7, 3).place;
    std::vector<at::Tensor> expected;
    for (const auto level : {none, activation, norm, selective, block}) {
      model.set_gradient_checkpointing(level);
      at::Generator(at::detail::getDefaultCPUGenerator()).set_current_seed(5);
      model.loss(ids, targets, {.dropout_place = place}).backward();
      const std::vector<at::Tensor> found = taken_gradients(model);
      if (level == none) expected = found;
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(at::equal(found[i], expected[i])) << model.parameters().rows()[i].name << ", ours " << ours;
    }
  }
}

// A prompt is one document, whatever tokens it has.
TEST_P(DocumentsOfGPT, GenerationDoesNotChange) {
  const ModelConfig config = config_of(GetParam());
  GPT model = some_model(config);
  const at::NoGradGuard no_grad;
  const at::Tensor ids = some_ids(1);
  const auto logits = [&] {
    KvCache cache = model.make_cache(kRows, kLength, at::kFloat);
    return test::forward_cached(model, ids, cache);
  };
  const at::Tensor with = logits();
  model.set_document_separator(std::nullopt);
  EXPECT_TRUE(at::equal(with, logits()));
}

INSTANTIATE_TEST_SUITE_P(Forms, DocumentsOfGPT, test::model_forms(),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gpt::model
