// Learning from conversations and evaluating on them: means are those over the targets that count, however they are dealt out.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gpt/tokenizer/make_tokenizer.h"
#include "mesh_run.h"
#include "support/conversations.h"
#include "support/device_cases.h"

namespace gpt::run {
namespace {

data::Corpus corpus_of_conversations(int64_t count = 120) {
  data::Corpus corpus = some_corpus();
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(4 + i * i % 12);
  corpus.train = corpus.validation = test::conversations(lengths, corpus.vocab_size).tokens(corpus.vocab_size);
  corpus.sources = {corpus.train};
  return corpus;
}

struct Conversation {
  int64_t start, positions;
};

std::vector<Conversation> all_conversations(const data::Tokens& tokens) {
  std::vector<Conversation> all;
  for (int64_t i = 0; i < tokens.size(); ++i) {
    if ((tokens.mark(i) & data::TokenMark::kBegins) != 0) all.push_back({i, -1});
    ++all.back().positions;
  }
  return all;
}

// The losses of the learned tokens of one conversation, in float64 from its logits.
struct LearnedLoss {
  double sum = 0;
  int64_t count = 0;
};
LearnedLoss learned_loss(const model::GPT& model, const data::Tokens& tokens, const Conversation& of) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < of.positions; ++i) ids.push_back(tokens[of.start + i]);
  const at::Tensor log_p =
      at::log_softmax(model.forward(at::tensor(ids).unsqueeze(0))[0].to(at::kDouble), 1);  // (positions, V)
  LearnedLoss loss;
  for (int64_t i = 0; i < of.positions; ++i) {
    if ((tokens.mark(of.start + i + 1) & data::TokenMark::kLearned) == 0) continue;
    loss.sum -= log_p[i][tokens[of.start + i + 1]].item<double>(), ++loss.count;
  }
  return loss;
}

Config run_config(const data::Corpus& corpus) {
  Config config = divided_run(corpus);
  config.training.cadence.eval_batches = 0;
  return config;
}

constexpr auto keep_on = [] { return false; };

TEST(RunOfConversations, AnUpdatesLossIsTheMeanOverItsTargetsThatCount) {
  const data::Corpus corpus = corpus_of_conversations();
  Config config = run_config(corpus);
  config.model.dropout = 0;
  in_mesh({1, 1}, config, corpus, [&](const run::Setup& setup) {
    run::Run run(setup, {});
    // The whole epoch as one update.
    batches::DataLoader& loader = run.state().loader;
    const int64_t batches = loader.batches_per_epoch(), learned = loader.learned_ahead(batches);
    LearnedLoss expected;
    run.model().train(false);
    for (const Conversation& conversation : all_conversations(corpus.train)) {
      const auto [sum, count] = learned_loss(run.model(), corpus.train, conversation);
      expected.sum += sum, expected.count += count;
    }
    run.model().train(true);
    ASSERT_EQ(learned, expected.count);
    const int64_t positions = loader.tokens_ahead(batches);
    EXPECT_GT(positions, learned);
    EXPECT_EQ(run_update(run.step(), loader, batches, 0, 0, keep_on), positions);
    const double mean = expected.sum / static_cast<double>(expected.count);
    EXPECT_NEAR(run.step().loss().item<double>(), mean, test::tolerance(at::kFloat, roundings_of(config), mean));
    EXPECT_EQ(run.state().counts().token_sum.item<double>(), static_cast<double>(learned));
  });
}

// As micro-batches of 6 rows, and of 2, which have unequal numbers of targets.
TEST(RunOfConversations, AccumulationIsTheFullBatch) {
  const data::Corpus corpus = corpus_of_conversations();
  const auto run_with = [&](int64_t rows, int64_t micro_batches) {
    Config config = run_config(corpus);
    config.training.batch_size = rows, config.training.gradient_accumulation_steps = micro_batches;
    return outcome_on({1, 1}, config, corpus, 5);
  };
  Config config = run_config(corpus);
  config.training.batch_size = 2, config.training.gradient_accumulation_steps = 3;
  expect_close(run_with(2, 3), run_with(6, 1), config, at::kFloat);
}

struct MeshCase {
  const char* name;
  Shape shape;
  std::function<void(Config&)> set = [](Config&) {};
};
void PrintTo(const MeshCase& mesh, std::ostream* out) { *out << mesh.name; }

void recompute(Config& config) { config.training.execution.gradient_checkpointing = GradientCheckpointing::block; }

const MeshCase kMeshCases[] = {
    {"data", {2, 1}},
    {"zero_2", {2, 1}, [](Config& config) { config.distributed.zero = 2; }},
    {"zero_3", {2, 1}, [](Config& config) { config.distributed.zero = 3; }},
    {"tensor", {2, 2}},
    {"tensor_of_gpt2", {2, 2}, make_gpt2},
    {"tensor_with_smoothing", {2, 2}, [](Config& config) { config.training.label_smoothing = 0.1; }},
    {"lanes", {1, 1}, [](Config& config) { config.distributed.lanes = 2; }},
    {"stages", {2, 1, 2}},
    {"stages_of_gpt2", {2, 1, 2}, make_gpt2},
    {"stages_and_data", {4, 1, 2}, recompute},
    {"gpt2_and_data", {2, 1}, make_gpt2},
};

class MeshOfConversations : public testing::TestWithParam<MeshCase> {};

TEST_P(MeshOfConversations, LearnsWhatOneProcessLearns) {
  const data::Corpus corpus = corpus_of_conversations();
  Config config = run_config(corpus);
  GetParam().set(config);
  Config alone = config;
  alone.distributed.zero = 0, alone.distributed.lanes = 1;
  expect_close(outcome_on(GetParam().shape, config, corpus, 5), outcome_on({1, 1}, alone, corpus, 5), config,
               at::kFloat);
}

INSTANTIATE_TEST_SUITE_P(All, MeshOfConversations, testing::ValuesIn(kMeshCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(RunOfConversations, ResumesToTheBit) {
  const data::Corpus corpus = corpus_of_conversations();
  const Config config = run_config(corpus);
  const Outcome first = outcome_on({1, 1}, config, corpus, 4), whole = outcome_on({1, 1}, config, corpus, 9),
                rest = outcome_on({1, 1}, config, corpus, 5, &first.checkpoint);
  EXPECT_EQ(rest.losses, (std::vector<double>{whole.losses.begin() + 4, whole.losses.end()}));
  expect_same_state(rest.checkpoint, whole.checkpoint);
}

class EvaluationOfConversations : public testing::Test {
 protected:
  Evaluation evaluate(const EvaluationRule& rule, int64_t batch_size = 4) {
    return Evaluator(corpus_, {batch_size, kRowLength}, rule, at::kCPU, device::Precision{}).run(model_, [](double) {
      return false;
    });
  }

  static constexpr int64_t kRowLength = 16;
  data::Corpus corpus_ = corpus_of_conversations(400);
  model::GPT model_ = [this] {
    model::GPT model(run_config(corpus_).model, at::kCPU, 3);
    model.parameters().flat_values().mul_(10);
    return model;
  }();
};

TEST_F(EvaluationOfConversations, IsTheMeanOverTheTargetsThatCount) {
  LearnedLoss expected;
  double bytes = 0;
  const std::vector<int32_t> of_tokens = corpus_.tokenizer->text_bytes();
  for (const Conversation& conversation : all_conversations(corpus_.validation)) {
    const auto [sum, count] = learned_loss(model_, corpus_.validation, conversation);
    expected.sum += sum, expected.count += count;
    for (int64_t i = conversation.start + 1; i <= conversation.start + conversation.positions; ++i)
      if ((corpus_.validation.mark(i) & data::TokenMark::kLearned) != 0)
        bytes += of_tokens[static_cast<size_t>(corpus_.validation[i])];
  }
  const double mean = expected.sum / static_cast<double>(expected.count);
  for (const bool packs : {true, false}) {
    const Evaluation found = evaluate({.eval_batches = 0, .packing = packs});
    EXPECT_EQ(found.tokens, expected.count);
    EXPECT_NEAR(found.loss, mean, test::tolerance(at::kFloat, 2000, mean));
    EXPECT_FALSE(found.standard_error);
    EXPECT_NEAR(*found.bits_per_byte, expected.sum / std::numbers::ln2 / bytes, 1e-4 * *found.bits_per_byte);
  }
}

// By the rows themselves: their sums, and what these have beyond the mean of their targets.
TEST_F(EvaluationOfConversations, OfAPartHasTheErrorOfARatio) {
  const Evaluation part = evaluate({.eval_batches = 20, .packing = false});
  EXPECT_EQ(part.sequences, 80);
  std::vector<LearnedLoss> all;
  LearnedLoss total;
  for (const Conversation& conversation : all_conversations(corpus_.validation)) {
    all.push_back(learned_loss(model_, corpus_.validation, conversation));
    total.sum += all.back().sum, total.count += all.back().count;
  }
  const double mean = total.sum / static_cast<double>(total.count), n = 80, N = static_cast<double>(all.size());
  double squares = 0;
  for (const auto& [sum, count] : all) squares += std::pow(sum - mean * static_cast<double>(count), 2);
  const double tokens = static_cast<double>(total.count) / N,
               expected = std::sqrt(squares / (N - 1) / n * (1 - n / N)) / tokens;
  ASSERT_TRUE(part.standard_error);
  EXPECT_NEAR(*part.standard_error, expected, 0.25 * expected);
  EXPECT_NEAR(part.loss, mean, 4 * expected);
  EXPECT_EQ(evaluate({.eval_batches = 20, .packing = false}).loss, part.loss);
}

}  // namespace
}  // namespace gpt::run
