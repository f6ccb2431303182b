// A model keeps its function where a family has its form but for factors that weights take over.
#include "exchange/moved_scales.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

#include "gpt/exchange/hugging_face.h"
#include "gpt/model/gpt.h"
#include "support/tolerance.h"

namespace gpt::exchange {
namespace {

ModelConfig small_model(Mlp mlp, bool has_scales, bool is_tied) {
  ModelConfig model;
  model.n_layer = 2, model.n_head = 2, model.n_embd = 40, model.block_size = 16, model.vocab_size = 31;
  model.vocab_multiple = 1, model.dropout = 0, model.mlp = mlp, model.tie_weights = is_tied;
  model.norm_unit_offset = model.scaled_embedding = has_scales;
  return model;
}

// Logits of the same tokens before and after.
void expect_same_function(const ModelConfig& config, const Family& expected) {
  const at::NoGradGuard no_gradients;
  at::manual_seed(1);
  const model::GPT model(config, at::kCPU, 1);
  for (size_t i = 0; i < model.parameters().rows().size(); ++i) {
    const at::Tensor value = model.parameters()[i].value();
    value.add_(at::randn_like(value), 0.1);
  }
  checkpoint::Checkpoint checkpoint;
  checkpoint.config.model = config, checkpoint.model = model.parameters().values();
  const checkpoint::Checkpoint moved = with_scales_moved(checkpoint);
  EXPECT_EQ(&family_of(moved.config.model, "here", "a program"), &expected);
  EXPECT_EQ(export_limits(config).find("transformers or"), std::string::npos);
  const at::Tensor ids = at::randint(0, 31, {2, 16}, at::kLong), logits = model.forward(ids),
                   of_moved = model::GPT(moved.config.model, at::kCPU, moved.model).forward(ids);
  const double bound = test::tolerance(at::kFloat, 2 * config.n_layer * (config.hidden() + 6 * config.n_embd),
                                       logits.abs().max().item<double>());
  EXPECT_LE((of_moved - logits).abs().max().item<double>(), bound);
}

TEST(MovedScales, GelusGateLeavesAsGemma) {
  expect_same_function(small_model(Mlp::geglu, false, true), kGemmaFamily);
  expect_same_function(small_model(Mlp::geglu, false, false), kGemmaFamily);
}

TEST(MovedScales, GemmasFactorsLeaveAsLlama) {
  expect_same_function(small_model(Mlp::swiglu, true, true), kLlamaFamily);
  expect_same_function(small_model(Mlp::swiglu, true, false), kLlamaFamily);
}

TEST(MovedScales, StayWhereTheFamilyHasThem) {
  checkpoint::Checkpoint checkpoint;
  checkpoint.config.model = small_model(Mlp::geglu, true, true);
  EXPECT_TRUE(with_scales_moved(checkpoint).config.model.scaled_embedding);
  checkpoint.config.model = small_model(Mlp::gelu, true, true);  // of no family
  EXPECT_TRUE(with_scales_moved(checkpoint).config.model.scaled_embedding);
}

}  // namespace
}  // namespace gpt::exchange
