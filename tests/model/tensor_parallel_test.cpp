// A model that several processes divide against the same model in one: losses, gradients, logits, dropout masks, and what is sent.
#include "gpt/model/tensor_parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/local_group.h"
#include "gpt/device/precision.h"
#include "gpt/layout/cut.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "support/cached_batch.h"
#include "support/dropout_at.h"
#include "support/model_forms.h"
#include "support/tolerance.h"

namespace gpt::model {
namespace {

constexpr int64_t kCutSequences = 3;

// An odd vocabulary, whose parts are not equal, and dropout everywhere.
ModelConfig divided_config(const test::ModelForm& form) {
  ModelConfig config = test::config_of(form);
  config.n_kv_head = 4, config.n_head = 8, config.n_hidden = 100, config.vocab_multiple = 3, config.dropout = 0.2;
  return config;
}

struct Batch {
  int64_t sequences = kCutSequences, length = 32;
};

at::Tensor tokens_for(const ModelConfig& config, uint64_t seed, const Batch& batch = {}) {
  return at::randint(*config.vocab_size, {batch.sequences, batch.length}, at::detail::createCPUGenerator(seed),
                     at::dtype(at::kLong));
}

struct Outcome {
  double loss = 0;
  parameters::NamedTensors gradients;
  std::vector<layout::ParameterRow> rows;
};

struct How {
  parameters::ParameterTypes types = {};
  GradientCheckpointing level = GradientCheckpointing::none;
  double smoothing = 0.1;
  std::vector<std::string> frozen = {};
  at::ScalarType autocast = at::kFloat;
  Batch batch = {};
};

GPT part_of_model(const ModelConfig& config, const distributed::Group& group, const How& how = {},
                  ops::SharedOperators inner = ops::fused_operators()) {
  const auto& tensor = group.mesh().tensor;
  GPT model(config, at::kCPU, /*seed=*/7, how.types, {.freeze = how.frozen}, {tensor->rank(), tensor->size()});
  model.set_operators(tensor_parallel(std::move(inner), tensor, config));
  model.set_gradient_checkpointing(how.level);
  return model;
}

Outcome learn_once(GPT& model, const How& how) {
  model.train(true);
  const at::Tensor upstream = at::full({}, 0.5);
  at::Tensor loss;
  {
    const device::Autocast autocast(at::kCPU, how.autocast);
    loss = model.loss(tokens_for(model.config(), 1, how.batch), tokens_for(model.config(), 2, how.batch),
                      {.label_smoothing = how.smoothing,
                       .chunk_rows = 40,
                       .upstream = upstream,
                       .dropout_place = test::dropout_at(at::kCPU, 0, /*key=*/11, /*first_sample=*/5).place});
  }
  loss.backward(upstream);
  Outcome outcome{loss.item<double>(), {}, model.parameters().rows()};
  for (const auto& [name, gradient] : model.parameters().gradients())
    outcome.gradients.emplace_back(name, gradient.clone());
  return outcome;
}

// Roundings one after another, from the ids to a loss and back: the sums of every layer and the head, and over all tokens.
int64_t roundings(const ModelConfig& config) {
  const int64_t C = config.n_embd, T = config.block_size;
  return 3 * (config.n_layer * (5 * C + config.head_dim() + T + config.hidden()) + 2 * C) + kCutSequences * T;
}

double largest_of(const at::Tensor& x) { return x.abs().max().item<double>(); }

void expect_same(const Outcome& one, const Outcome& part, const ModelConfig& config, at::ScalarType type,
                 int64_t rank) {
  EXPECT_NEAR(part.loss, one.loss, test::tolerance(type, roundings(config), one.loss));
  ASSERT_EQ(part.gradients.size(), one.gradients.size());
  size_t i = 0;
  double of_product = 0;
  for (const layout::ParameterRow& row : part.rows) {
    if (!row.is_trained) continue;
    const auto& [name, gradient] = part.gradients[i];
    const at::Tensor expected = parameters::part_of(row, one.gradients[i++].second).to(at::kFloat);
    ASSERT_EQ(name, row.name);
    double scale = largest_of(one.gradients[i - 1].second.to(at::kFloat));
    // The weights of attention to a single token are 1, and norms of queries and keys get what rounding leaves of the product's gradient.
    if (row.role == layout::ParameterRole::attention_in) of_product = scale;
    if (row.role == layout::ParameterRole::query_norm || row.role == layout::ParameterRole::key_norm)
      scale = std::max(scale, of_product);
    EXPECT_LE(largest_of(gradient.to(at::kFloat) - expected), test::tolerance(type, roundings(config), scale))
        << name << " of rank " << rank;
  }
}

class TensorParallelTest : public testing::TestWithParam<test::ModelForm> {
 protected:
  const ModelConfig config_ = divided_config(GetParam());

  void expect_like_one(const How& how, at::ScalarType type, int64_t size = 2) const {
    GPT whole(config_, at::kCPU, /*seed=*/7, how.types, {.freeze = how.frozen});
    const Outcome one = learn_once(whole, how);
    test::in_ranks(size, [&](distributed::Group& group) {
      group.arrange(size);
      GPT part = part_of_model(config_, group, how);
      expect_same(one, learn_once(part, how), config_, type, group.ranks().rank);
    });
  }
};

TEST_P(TensorParallelTest, LossAndGradientsAreThoseOfOneProcess) {
  for (const int64_t size : {2, 4}) expect_like_one({}, at::kFloat, size);
}

TEST_P(TensorParallelTest, LossAndGradientsInBfloat16) {
  expect_like_one({.types = {.compute = at::kBFloat16, .gradient = at::kBFloat16}}, at::kBFloat16);
  expect_like_one({.autocast = at::kBFloat16}, at::kBFloat16);
}

TEST_P(TensorParallelTest, RecomputingChangesNoBit) {
  using enum GradientCheckpointing;
  test::in_ranks(2, [&](distributed::Group& group) {
    group.arrange(2);
    GPT kept = part_of_model(config_, group);
    const Outcome expected = learn_once(kept, {});
    for (const GradientCheckpointing level : {activation, norm, selective, block}) {
      const How how{.level = level};
      GPT again = part_of_model(config_, group, how);
      const Outcome outcome = learn_once(again, how);
      EXPECT_EQ(outcome.loss, expected.loss);
      for (size_t i = 0; i < expected.gradients.size(); ++i)
        EXPECT_TRUE(outcome.gradients[i].second.equal(expected.gradients[i].second)) << expected.gradients[i].first;
    }
  });
}

// The rows of the last processes are padding, in part or all of them.
TEST_P(TensorParallelTest, RowsThatCannotBeDividedEvenly) {
  expect_like_one({.batch = {kCutSequences, 7}}, at::kFloat, /*size=*/2);
  expect_like_one({.batch = {kCutSequences, 7}}, at::kFloat, /*size=*/4);
  expect_like_one({.level = GradientCheckpointing::norm, .batch = {1, 5}}, at::kFloat, /*size=*/4);
  expect_like_one({.batch = {1, 1}}, at::kFloat, /*size=*/2);
}

TEST_P(TensorParallelTest, WhatAllHaveWholeGetsTheSameGradientsInAll) {
  test::in_ranks(2, [&](distributed::Group& group) {
    group.arrange(2);
    const How how{.batch = {kCutSequences, 7}};
    GPT part = part_of_model(config_, group, how);
    const Outcome outcome = learn_once(part, how);
    for (size_t i = 0; i < outcome.rows.size(); ++i) {
      const auto& [name, gradient] = outcome.gradients[i];
      if (outcome.rows[i].cut) continue;
      const at::Tensor of_first = gradient.clone();
      group.mesh().all->broadcast(of_first);
      EXPECT_TRUE(gradient.equal(of_first)) << name;
    }
  });
}

// Takes down how many rows are normalized, and dropped out behind the embedding.
class NotesRows : public ops::WrappedOperators {
 public:
  explicit NotesRows(std::vector<int64_t>& noted) : WrappedOperators(ops::fused_operators()), noted_(noted) {}
  at::Tensor embedding(const at::Tensor& ids, const parameters::Parameter& table,
                       const parameters::Parameter& positions, const at::Tensor& starts,
                       const ops::DropoutSpec& dropout) const override {
    if (dropout.probability > 0) noted_.push_back(ids.numel());
    return inner_->embedding(ids, table, positions, starts, dropout);
  }
  ops::Normalized add_norm(const ops::Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                           const ops::DropoutSpec& dropout) const override {
    noted_.push_back(x.numel() / x.size(-1));
    return inner_->add_norm(norm, x, branch, dropout);
  }

 private:
  std::vector<int64_t>& noted_;
};

TEST_P(TensorParallelTest, EachProcessHasAnNthOfTheStream) {
  using enum GradientCheckpointing;
  for (const GradientCheckpointing level : {none, selective, block}) {
    test::in_ranks(4, [&](distributed::Group& group) {
      group.arrange(4);
      std::vector<int64_t> noted;
      const How how{.level = level};
      GPT part = part_of_model(config_, group, how, std::make_shared<NotesRows>(noted));
      (void)learn_once(part, how);
      EXPECT_GE(std::ssize(noted), 1 + 2 * config_.n_layer + 1);
      for (const int64_t rows : noted) EXPECT_EQ(rows, kCutSequences * config_.block_size / 4);
    });
  }
}

TEST_P(TensorParallelTest, WhatIsFrozenStaysOut) {
  expect_like_one({.frozen = {"wte", "h.0"}}, at::kFloat);
  expect_like_one({.frozen = {"h.*.attn.c_attn", "h.*.mlp"}}, at::kFloat);
}

TEST_P(TensorParallelTest, InitialWeightsAreThePartsOfOneProcessesAndWholeOnesAreRead) {
  const GPT whole(config_, at::kCPU, 7), other(config_, at::kCPU, 8);
  test::in_ranks(4, [&](distributed::Group& group) {
    group.arrange(4);
    GPT part = part_of_model(config_, group);
    const auto expect_parts_of = [&](const GPT& of) {
      const parameters::NamedTensors values = part.parameters().values(), all = of.parameters().values();
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_TRUE(values[i].second.equal(parameters::part_of(part.parameters().rows()[i], all[i].second)))
            << values[i].first;
    };
    expect_parts_of(whole);
    parameters::Parameters(part.parameters()).copy_from(other.parameters().values());
    expect_parts_of(other);
    group.mesh().all->sum(at::zeros({1}));  // nobody leaves before all have met
  });
}

TEST_P(TensorParallelTest, InferenceGivesTheLogitsOfOneProcess) {
  const at::NoGradGuard no_gradients;
  const GPT whole(config_, at::kCPU, 7);
  const at::Tensor ids = tokens_for(config_, 1), targets = tokens_for(config_, 2), logits = whole.forward(ids),
                   losses = whole.token_losses(ids, targets);
  const at::Tensor places = at::arange(5, at::kLong), greedy = logits.flatten(0, 1).argmax(1).narrow(0, 0, 5);
  const double bound = test::tolerance(at::kFloat, roundings(config_), largest_of(logits)),
               of_loss = test::tolerance(at::kFloat, roundings(config_), largest_of(losses));
  test::in_ranks(2, [&](distributed::Group& group) {
    const at::NoGradGuard no_gradients;
    group.arrange(2);
    const GPT part = part_of_model(config_, group);
    EXPECT_LE(largest_of(part.forward(ids) - logits), bound);
    EXPECT_LE(largest_of(part.token_losses(ids, targets) - losses), of_loss);
    const TokenScores scores = part.score(ids, places, greedy);
    EXPECT_TRUE(scores.is_greedy.all().item<bool>());
    KvCache cache = part.make_cache(kCutSequences, config_.block_size, at::kFloat);
    const at::Tensor first = test::forward_cached(part, ids.narrow(1, 0, 9), cache),
                     next = test::forward_cached(part, ids.narrow(1, 9, 1), cache);
    EXPECT_LE(largest_of(first - logits.select(1, 8)), bound);
    EXPECT_LE(largest_of(next - logits.select(1, 9)), bound);
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, TensorParallelTest, testing::ValuesIn(test::divisible_forms()),
                         [](const auto& info) { return info.param.name; });

// Sizes of which no part is padded.
TEST(TensorParallel, SendsTheBytesOfTheFormula) {
  ModelConfig config = divided_config({"gpt2", Mlp::gelu, Norm::layernorm, Position::learned, true, true});
  config.block_size = 256;
  for (const int64_t size : {2, 4}) {
    using enum GradientCheckpointing;
    for (const GradientCheckpointing level : {none, activation, norm, selective, block}) {
      test::in_ranks(size, [&](distributed::Group& group) {
        group.arrange(size);
        const How how{.level = level};
        GPT part = part_of_model(config, group, how);
        part.train(true);
        const at::Tensor ids = at::zeros({2, config.block_size}, at::kLong);
        const int64_t before = group.mesh().bytes_sent();
        part.loss(ids, ids).backward();
        EXPECT_EQ(static_cast<double>(group.mesh().tensor->bytes_sent()),
                  tensor_sums(config, {.size = size}, ids.numel(), {4, 4}, level).bytes);
        EXPECT_EQ(group.mesh().bytes_sent() - before, group.mesh().tensor->bytes_sent());
      });
    }
  }
}

// Documents of one token each, all of which are at the first position.
TEST(TensorParallel, PositionsOfManyDocumentsAreRoundedOnce) {
  constexpr int64_t kTokens = 1000, kColumns = 8, kProcesses = 2;
  const ModelConfig config = divided_config({"gpt2", Mlp::gelu, Norm::layernorm, Position::learned, true, true});
  test::in_ranks(kProcesses, [&](distributed::Group& group) {
    group.arrange(kProcesses);
    const auto& tensor = group.mesh().tensor;
    const layout::FlatSpan own = layout::vocabulary_rows(config.padded_vocab(), {tensor->rank(), tensor->size()});
    const parameters::Parameter table(at::zeros({own.end - own.begin, kColumns}, at::kBFloat16)),
        positions(at::zeros({kTokens, kColumns}, at::kBFloat16));
    const at::Tensor ids = at::zeros({1, kTokens}, at::kLong), starts = at::arange(kTokens, at::kInt).unsqueeze(0),
                     x = dividing_rows(tensor_parallel(ops::fused_operators(), tensor, config), 1, kTokens)
                             ->embedding(ids, table, positions, starts, {});
    x.backward(at::full(x.sizes(), 1, at::kBFloat16));
    const at::Tensor gradient = positions.gradient();
    EXPECT_TRUE(gradient[0].eq(kTokens).all().item<bool>());
    EXPECT_TRUE(gradient.narrow(0, 1, kTokens - 1).eq(0).all().item<bool>());
  });
}

TEST(TensorParallel, NeighboursDivideTheModelAndTheOthersTheSequences) {
  test::in_ranks(4, [&](distributed::Group& group) {
    group.arrange(2);
    const distributed::Mesh& mesh = group.mesh();
    const int64_t rank = group.ranks().rank;
    EXPECT_EQ(mesh.tensor->rank(), rank % 2);
    EXPECT_EQ(mesh.data->rank(), rank / 2);
    const at::Tensor of_tensor = at::full({1}, static_cast<double>(rank)), of_data = of_tensor.clone();
    mesh.tensor->sum(of_tensor);
    mesh.data->sum(of_data);
    EXPECT_EQ(of_tensor.item<double>(), rank < 2 ? 0 + 1 : 2 + 3);
    EXPECT_EQ(of_data.item<double>(), rank % 2 == 0 ? 0 + 2 : 1 + 3);
  });
}

}  // namespace
}  // namespace gpt::model
