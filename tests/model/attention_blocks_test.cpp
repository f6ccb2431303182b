// A model whose queries choose blocks: in parts, recomputed, in 16 bits, and what it is not combined with.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <vector>

#include "distributed/local_group.h"
#include "gpt/model/attention_form.h"
#include "gpt/model/gpt.h"
#include "gpt/model/tensor_parallel.h"
#include "gpt/ops/operator_sets.h"
#include "support/cached_batch.h"
#include "support/dropout_at.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace gpt::model {
namespace {

constexpr int64_t kPositionsInBlocks = 300, kTokensOfBlocks = 61;

ModelConfig config_of_blocks(double dropout) {
  ModelConfig config;
  config.n_layer = 2, config.n_head = 4, config.n_kv_head = 2, config.n_embd = 32,
  config.block_size = kPositionsInBlocks;
  config.vocab_size = kTokensOfBlocks, config.dropout = dropout;
  config.attention = AttentionForm::blocks, config.attention_top_blocks = 1;
  return config;
}

at::Tensor ids_for_blocks(int64_t sequences, uint64_t seed) {
  return at::randint(kTokensOfBlocks, {sequences, kPositionsInBlocks}, at::detail::createCPUGenerator(seed),
                     at::dtype(at::kLong));
}

struct LearnedWithBlocks {
  double loss;
  parameters::NamedTensors gradients;
};

LearnedWithBlocks learn(GPT& model, GradientCheckpointing level = GradientCheckpointing::none) {
  model.train(true);
  model.set_gradient_checkpointing(level);
  const at::Tensor upstream = at::full({}, 0.5);
  const at::Tensor loss =
      model.loss(ids_for_blocks(2, 1), ids_for_blocks(2, 2),
                 {.upstream = upstream, .dropout_place = test::dropout_at(at::kCPU, 0, 11, 5).place});
  loss.backward(upstream);
  LearnedWithBlocks learned{loss.item<double>(), {}};
  for (const auto& [name, gradient] : model.parameters().gradients())
    learned.gradients.emplace_back(name, gradient.clone());
  return learned;
}

double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }

TEST(AttentionBlocks, RecomputingChangesNoBit) {
  GPT model(config_of_blocks(0.1), at::kCPU, 7);
  const LearnedWithBlocks kept = learn(model);
  using enum GradientCheckpointing;
  for (const GradientCheckpointing level : {activation, norm, selective, block}) {
    GPT again(config_of_blocks(0.1), at::kCPU, 7);
    const LearnedWithBlocks found = learn(again, level);
    EXPECT_EQ(found.loss, kept.loss);
    for (size_t i = 0; i < kept.gradients.size(); ++i)
      EXPECT_TRUE(found.gradients[i].second.equal(kept.gradients[i].second)) << kept.gradients[i].first;
  }
}

// With the masks of dropout, too.
TEST(AttentionBlocks, HeadsChooseAlikeInWhicheverProcessTheyAre) {
  const ModelConfig config = config_of_blocks(0.1);
  GPT whole(config, at::kCPU, 7);
  const LearnedWithBlocks one = learn(whole);
  const int64_t roundings = 6 * (5 * config.n_embd + config.head_dim() + kPositionsInBlocks + config.hidden());
  test::in_ranks(2, [&](distributed::Group& group) {
    group.arrange(2);
    const auto& tensor = group.mesh().tensor;
    GPT part(config, at::kCPU, 7, {}, {}, {tensor->rank(), tensor->size()});
    part.set_operators(tensor_parallel(ops::fused_operators(), tensor, config));
    const LearnedWithBlocks found = learn(part);
    EXPECT_NEAR(found.loss, one.loss, test::tolerance(at::kFloat, roundings, one.loss));
    const std::vector<layout::ParameterRow> rows = part.parameters().rows();
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      const at::Tensor expected = parameters::part_of(rows[i], one.gradients[i].second);
      EXPECT_LE(largest(found.gradients[i].second - expected),
                test::tolerance(at::kFloat, roundings, largest(one.gradients[i].second)))
          << rows[i].name;
    }
  });
}

// Both round, and a choice that is nearly a tie may fall otherwise: so norms are compared.
TEST(AttentionBlocks, InSixteenBitsACacheGivesWhatAPassWithoutOneGives) {
  const GPT model(config_of_blocks(0), at::kCPU, 7, {.compute = at::kBFloat16});
  const at::NoGradGuard no_grad;
  const at::Tensor ids = ids_for_blocks(2, 3), expected = model.forward(ids).to(at::kFloat);
  for (const std::vector<int64_t>& chunks : {std::vector<int64_t>{kPositionsInBlocks}, {1, 63, 2, 130, 4, 100}}) {
    KvCache cache = model.make_cache(2, kPositionsInBlocks, at::kBFloat16);
    for (const int64_t count : chunks) {
      const int64_t end = cache.lengths[0] + count;
      const at::Tensor logits =
                           test::forward_cached(model, ids.narrow(1, cache.lengths[0], count), cache).to(at::kFloat),
                       wanted = expected.select(1, end - 1);
      EXPECT_LE((logits - wanted).norm().item<double>(),
                test::tolerance(at::kBFloat16, 16, wanted.norm().item<double>()))
          << end << " of chunk " << count;
    }
  }
}

TEST(AttentionBlocks, AGpuAndDocumentMasksAreRefused) {
  const ModelConfig config = config_of_blocks(0);
  EXPECT_ERROR(require_attention_on(config, at::kCUDA), ExitCode::config,
               "a model with attention in chosen blocks is computed on a CPU alone so far; set --device cpu");
  EXPECT_NO_THROW(require_attention_on(config, at::kCPU));
  GPT model(config, at::kCPU, 7);
  EXPECT_NO_THROW(model.set_document_separator(std::nullopt));
  EXPECT_THROW(model.set_document_separator(3), c10::Error) << "the rules of a configuration refuse it before";
  ModelConfig idle = config;
  idle.attention_top_blocks = 4;  // there are no more
  EXPECT_NO_THROW(require_attention_on(idle, at::kCUDA));
  EXPECT_NO_THROW(GPT(idle, at::kCPU, 7).set_document_separator(3));
}

}  // namespace
}  // namespace gpt::model
