// Validation: the loss of exactly the tokens that are foreseen, and the bytes of exactly their text.
#include "gpt/train/evaluator.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>

namespace gpt {
namespace {

constexpr int64_t kBlock = 8;

Corpus corpus_of(const std::string& text) {
  Corpus corpus;
  corpus.tokenizer = make_tokenizer("char", text);
  corpus.vocab_size = corpus.tokenizer->vocab_size();
  corpus.validation = Tokens::from_ids(corpus.tokenizer->encode(text), corpus.vocab_size);
  return corpus;
}

GPT model_for(const Corpus& corpus) {
  ModelConfig config;
  config.n_layer = 1, config.n_head = 2, config.n_embd = 16;
  config.block_size = kBlock;
  config.vocab_size = corpus.vocab_size;
  config.vocab_multiple = 1;
  config.dropout = 0.5;  // off while evaluating
  return GPT(config, at::kCPU, 1);
}

// The sum of -log p over targets 1..count, window by window, in the simplest way.
double reference_nats(GPT& model, const Tokens& tokens, int64_t count) {
  at::NoGradGuard no_grad;
  model.train(false);
  double nats = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    std::vector<int64_t> inputs, targets;
    for (int64_t i = begin; i < begin + length; ++i) inputs.push_back(tokens[i]), targets.push_back(tokens[i + 1]);
    nats += model.loss(at::tensor(inputs).unsqueeze(0), at::tensor(targets).unsqueeze(0)).item<double>() * static_cast<double>(length);
  }
  model.train(true);
  return nats;
}

TEST(Evaluator, LossAndBitsPerByteOfTheWholeSplit) {
  std::string text;
  for (int i = 0; i < 15; ++i) text += "aé€" + std::string(i % 3, 'b');
  text += "€";  // as long as no other end: which tokens are foreseen shows in the bytes
  const Corpus corpus = corpus_of(text);
  GPT model = model_for(corpus);
  const Evaluator evaluator(corpus, 2, kBlock, 0, at::kCPU, Precision{});
  ASSERT_TRUE(evaluator.knows_bytes());
  const Evaluation result = evaluator.run(model, [] { return false; });
  const int64_t targets = corpus.validation.size() - 1;
  const double nats = reference_nats(model, corpus.validation, targets);
  // Two orders of summing `targets` float32 losses.
  const double relative = 4e-7 * std::sqrt(static_cast<double>(targets));
  EXPECT_NEAR(result.loss, nats / static_cast<double>(targets), relative * result.loss);
  EXPECT_NEAR(*result.bits_per_byte, nats / std::numbers::ln2 / static_cast<double>(text.size() - 1), relative * *result.bits_per_byte);
  EXPECT_DOUBLE_EQ(result.perplexity(), std::exp(result.loss));
  EXPECT_TRUE(model.training());
}

TEST(Evaluator, OfAPartOnlyItsOwnBytesCount) {
  const std::string text = "€" + std::string(16, 'a') + "€€€€€€€€€€€€€€€€€€€€€€€€€€€€€€";
  const Corpus corpus = corpus_of(text);
  GPT model = model_for(corpus);
  const Evaluation part = Evaluator(corpus, 2, kBlock, 1, at::kCPU, Precision{}).run(model, [] { return false; });
  // 16 targets of one byte each: bits per byte are the bits per token.
  EXPECT_NEAR(*part.bits_per_byte, part.loss / std::numbers::ln2, 1e-12);
  EXPECT_NEAR(part.loss, reference_nats(model, corpus.validation, 16) / 16, 2e-6);
}

TEST(Evaluator, WithoutATokenizerTheMetadataTellsTheAverage) {
  Corpus corpus = corpus_of(std::string(30, 'a') + "bc");
  GPT model = model_for(corpus);
  corpus.tokenizer = nullptr;
  EXPECT_FALSE(Evaluator(corpus, 2, kBlock, 0, at::kCPU, Precision{}).knows_bytes());
  corpus.validation_bytes = 4 * corpus.validation.size();
  const Evaluation result = Evaluator(corpus, 2, kBlock, 0, at::kCPU, Precision{}).run(model, [] { return false; });
  EXPECT_NEAR(*result.bits_per_byte, result.loss / std::numbers::ln2 / 4, 1e-12);
}

TEST(Evaluator, StopsBetweenBatches) {
  const Corpus corpus = corpus_of(std::string(100, 'a') + "b");
  GPT model = model_for(corpus);
  const Evaluation result = Evaluator(corpus, 2, kBlock, 0, at::kCPU, Precision{}).run(model, [] { return true; });
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_FALSE(result.bits_per_byte);
}

}  // namespace
}  // namespace gpt
