// Validation: the loss of exactly the tokens that are predicted, and the bytes of exactly their text.
#include "gpt/run/evaluator.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpt/tokenizer/make_tokenizer.h"
#include "support/device_cases.h"
#include "support/tolerance.h"

namespace gpt::run {
namespace {

constexpr int64_t kBlock = 8;

data::Corpus corpus_of(const std::string& text) {
  data::Corpus corpus;
  corpus.tokenizer = tokenizer::make_tokenizer("char", text);
  corpus.vocab_size = corpus.tokenizer->vocab_size();
  corpus.validation = data::Tokens::from_ids(corpus.tokenizer->encode(text), corpus.vocab_size);
  return corpus;
}

std::string letters(size_t count) { return std::string(count, 'a'); }

model::GPT model_for(const data::Corpus& corpus, at::Device device, at::ScalarType compute_type = at::kFloat) {
  ModelConfig config;
  config.n_layer = 1, config.n_head = 2, config.n_embd = 16;
  config.block_size = kBlock;
  config.vocab_size = corpus.vocab_size;
  config.vocab_multiple = 1;
  config.dropout = 0.5;  // off while evaluating
  return model::GPT(config, device, 1, {.compute = compute_type});
}

// The sum of -log p over targets 1..count, window by window, in the simplest way.
double reference_nats(model::GPT& model, const data::Tokens& tokens, int64_t count, int64_t first = 0) {
  at::NoGradGuard no_grad;
  model.train(false);
  double nats = 0;
  for (int64_t begin = first; begin < first + count; begin += kBlock) {
    const int64_t length = std::min(kBlock, first + count - begin);
    std::vector<int64_t> inputs, targets;
    for (int64_t i = begin; i < begin + length; ++i) inputs.push_back(tokens[i]), targets.push_back(tokens[i + 1]);
    nats += model
                .loss(at::tensor(inputs).unsqueeze(0).to(model.device()),
                      at::tensor(targets).unsqueeze(0).to(model.device()))
                .item<double>() *
            static_cast<double>(length);
  }
  model.train(true);
  return nats;
}

class EvaluatorTest : public DeviceTest {};

TEST_P(EvaluatorTest, LossAndBitsPerByteOfTheWholeSplit) {
  std::string text;
  for (int i = 0; i < 15; ++i) text += "aé€" + std::string(i % 3, 'b');
  text += "€";  // as long as no other end: which tokens are foreseen shows in the bytes
  const data::Corpus corpus = corpus_of(text);
  model::GPT model = model_for(corpus, device());
  Evaluator evaluator(corpus, {2, kBlock}, EvaluationRule{0}, device(), device::Precision{});
  ASSERT_TRUE(evaluator.knows_bytes());
  const Evaluation result = evaluator.run(model, [](double) { return false; });
  const int64_t targets = corpus.validation.size() - 1;
  const double nats = reference_nats(model, corpus.validation, targets);
  // Two orders of summing `targets` float32 losses.
  const double relative = 4e-7 * std::sqrt(static_cast<double>(targets));
  EXPECT_NEAR(result.loss, nats / static_cast<double>(targets), relative * result.loss);
  EXPECT_NEAR(*result.bits_per_byte, nats / std::numbers::ln2 / static_cast<double>(text.size() - 1),
              relative * *result.bits_per_byte);
  EXPECT_DOUBLE_EQ(result.perplexity(), std::exp(result.loss));
  EXPECT_TRUE(model.training());
}

TEST_P(EvaluatorTest, OfAPartOnlyItsOwnBytesCount) {
  std::string text = "€" + std::string(16, 'a');
  for (int i = 0; i < 30; ++i) text += "€";
  const data::Corpus corpus = corpus_of(text);
  model::GPT model = model_for(corpus, device());
  const Evaluation part =
      Evaluator(corpus, {2, kBlock}, {.eval_batches = 1, .takes_neighbours = true}, device(), device::Precision{})
          .run(model, [](double) { return false; });
  // 16 targets of one byte each: bits per byte are the bits per token.
  EXPECT_NEAR(*part.bits_per_byte, part.loss / std::numbers::ln2, 1e-12);
  EXPECT_NEAR(part.loss, reference_nats(model, corpus.validation, 16) / 16, 2e-6);
}

// The rule of older runs: consecutive sequences, in batches that are spread evenly.
TEST_P(EvaluatorTest, NeighboursAreSpreadOverTheSplitInBatches) {
  std::string text = "€";
  for (const char letter : {'a', 'b', 'c', 'd'}) text.append(16, letter);
  text += "abcd";
  const data::Corpus corpus = corpus_of(text);
  model::GPT model = model_for(corpus, device());
  Evaluator evaluator(corpus, {2, kBlock}, {.eval_batches = 2, .takes_neighbours = true}, device(),
                      device::Precision{});
  std::vector<double> shares;
  const Evaluation part = evaluator.run(model, [&](double share) { return shares.push_back(share), false; });
  EXPECT_EQ(part.tokens, 32);
  EXPECT_FALSE(part.standard_error);
  EXPECT_NEAR(part.loss,
              (reference_nats(model, corpus.validation, 16) + reference_nats(model, corpus.validation, 16, 32)) / 32,
              2e-6);
  EXPECT_NEAR(*part.bits_per_byte, part.loss / std::numbers::ln2, 1e-12);
  EXPECT_EQ(shares, (std::vector<double>{0, 0.5}));
}

// Long stretches of one kind, as a corpus of several sources has, and a model that finds some much harder than others.
class MixedCorpus : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    std::string text;
    for (int stretch = 0; stretch < 40; ++stretch) {
      for (int i = 0; i < 100 * kBlock; ++i)
        text += static_cast<char>('a' + stretch % 8 + (i * i + i / 7) % (1 + stretch % 4));
    }
    corpus_ = corpus_of(text + "abc");
    model_.emplace(model_for(corpus_, device()));
    model_->parameters().flat_values().mul_(20);
    batches::SplitWindows windows(corpus_.validation, kBlock, device());
    std::vector<int64_t> all(static_cast<size_t>(windows.size()));
    std::iota(all.begin(), all.end(), 0);
    const batches::Batch batch = windows.batch(all);
    model_->train(false);
    means_ = model_->token_losses(batch.inputs, batch.targets).mean(1).to(at::kDouble).cpu();
  }
  Evaluation evaluate(const EvaluationRule& rule) {
    return Evaluator(corpus_, {16, kBlock}, rule, device(), device::Precision{}).run(*model_, [](double) {
      return false;
    });
  }

  data::Corpus corpus_;
  std::optional<model::GPT> model_;
  at::Tensor means_;  // means of each window's losses
};

TEST_P(MixedCorpus, TheFirstEvaluationGoesOnUntilItsErrorIsSmallAndIsRight) {
  const Evaluation whole = evaluate({.eval_batches = 0}), part = evaluate({});
  EXPECT_FALSE(whole.standard_error);
  EXPECT_EQ(whole.tokens, corpus_.validation.size() - 1);
  ASSERT_TRUE(part.standard_error);
  EXPECT_LT(part.sequences, whole.sequences);
  EXPECT_LE(*part.standard_error, 0.005 * part.loss);
  // By the deviation of all windows, the error of so many that are drawn without replacement.
  const auto n = static_cast<double>(part.sequences), all = static_cast<double>(means_.numel());
  const double expected = means_.std().item<double>() * std::sqrt((1 - n / all) / n);
  EXPECT_NEAR(*part.standard_error, expected, 0.25 * expected);
  EXPECT_NEAR(part.loss, whole.loss, 4 * expected);
  EXPECT_GT(2 * expected, 0.005 * part.loss) << "far more sequences than are needed";
}

TEST_P(MixedCorpus, LaterEvaluationsTakeTheSameSequencesAndSoDoesARunThatResumes) {
  Evaluator evaluator(corpus_, {16, kBlock}, {}, device(), device::Precision{});
  const auto run = [&] { return evaluator.run(*model_, [](double) { return false; }); };
  const Evaluation first = run(), second = run(), resumed = evaluate({.sequences = first.sequences});
  EXPECT_EQ(second.loss, resumed.loss);
  EXPECT_EQ(second.sequences, first.sequences);
  EXPECT_EQ(resumed.bits_per_byte, second.bits_per_byte);
  EXPECT_NEAR(first.loss, second.loss, 1e-6 * second.loss);  // its batches may be others
}

TEST_P(MixedCorpus, EvalBatchesAreSoManySequencesFromAllOverTheSplit) {
  const Evaluation part = evaluate({.eval_batches = 20});
  EXPECT_EQ(part.sequences, 20 * 16);
  ASSERT_TRUE(part.standard_error);
  EXPECT_NEAR(part.loss, means_.mean().item<double>(), 4 * *part.standard_error);
  EXPECT_EQ(evaluate({.eval_batches = 1000}).loss, evaluate({.eval_batches = 0}).loss);
}

INSTANTIATE_ON_DEVICES(MixedCorpus);

TEST_P(EvaluatorTest, AboutSoManySequencesAreForeseen) {
  for (const int64_t T : {8, 64, 256, 1024}) {
    const double variance = 0.01 + 1.2 / static_cast<double>(T);
    EXPECT_NEAR(std::sqrt(variance / static_cast<double>(automatic_eval_sequences(T))), 0.005, 1e-4) << T;
  }
  TrainingConfig training;
  EXPECT_EQ(evaluation_tokens(training, kBlock, 1'000'000), automatic_eval_sequences(kBlock) * kBlock);
  EXPECT_EQ(evaluation_tokens(training, kBlock, 1000), 999);
  training.cadence.eval_batches = 2, training.batch_size = 4;
  EXPECT_EQ(evaluation_tokens(training, kBlock, 1000), 2 * 4 * kBlock);
}

TEST_P(EvaluatorTest, WithoutATokenizerTheMetadataTellsTheAverage) {
  data::Corpus corpus = corpus_of(letters(30) + 'b' + 'c');
  model::GPT model = model_for(corpus, device());
  corpus.tokenizer = nullptr;
  EXPECT_FALSE(Evaluator(corpus, {2, kBlock}, EvaluationRule{0}, device(), device::Precision{}).knows_bytes());
  corpus.validation_bytes = 4 * corpus.validation.size();
  const Evaluation result =
      Evaluator(corpus, {2, kBlock}, EvaluationRule{0}, device(), device::Precision{}).run(model, [](double) {
        return false;
      });
  EXPECT_NEAR(*result.bits_per_byte, result.loss / std::numbers::ln2 / 4, 1e-12);
}

TEST_P(EvaluatorTest, StopsBetweenBatches) {
  const data::Corpus corpus = corpus_of(letters(100) + 'b');
  model::GPT model = model_for(corpus, device());
  const Evaluation result =
      Evaluator(corpus, {2, kBlock}, EvaluationRule{0}, device(), device::Precision{}).run(model, [](double) {
        return true;
      });
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_FALSE(result.bits_per_byte);
}

TEST_P(EvaluatorTest, DropoutIsOnAgainAfterOneThatThrew) {
  const data::Corpus corpus = corpus_of(letters(100) + 'b');
  model::GPT model = model_for(corpus, device());
  model.train(true);
  Evaluator evaluator(corpus, {2, kBlock}, EvaluationRule{0}, device(), device::Precision{});
  const auto interrupt = [&](double) -> bool {
    EXPECT_FALSE(model.training());
    throw std::runtime_error("the data changed");
  };
  EXPECT_THROW((void)evaluator.run(model, interrupt), std::runtime_error);
  EXPECT_TRUE(model.training());
}

TEST_P(EvaluatorTest, ComputesInThePrecisionOfTheTraining) {
  const data::Corpus corpus = corpus_of("abcdefgh" + std::string(60, 'a') + "hgfedcba");
  const auto loss_in = [&](const device::Precision& precision) {
    model::GPT model = model_for(corpus, device(), precision.weight_type());
    return Evaluator(corpus, {2, kBlock}, EvaluationRule{0}, device(), precision)
        .run(model, [](double) { return false; })
        .loss;
  };
  const double exact = loss_in(device::Precision{});
  for (const bool end_to_end : {false, true}) {
    device::Precision bfloat16;
    bfloat16.dtype = Dtype::bfloat16;
    bfloat16.end_to_end = end_to_end;
    const double rounded = loss_in(bfloat16);
    EXPECT_NE(rounded, exact);
    EXPECT_NEAR(rounded, exact, test::tolerance(at::kBFloat16, 4 * 16, exact));
  }
}

INSTANTIATE_ON_DEVICES(EvaluatorTest);

}  // namespace
}  // namespace gpt::run
