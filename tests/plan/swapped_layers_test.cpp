// What training.swap_activations is planned to take, and how many blocks it chooses.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <memory>

#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/plan/batch_choice.h"
#include "gpt/plan/estimates.h"
#include "plan/gpt2.h"
#include "support/late_copies.h"

namespace gpt::plan {
namespace {

// Two of four blocks are on the device at a time, beside the one that is not swapped.
TEST(SwappedLayers, KeepWhatTheyKeepInTheMemoryOfTheHost) {
  ModelConfig model = gpt2_small();
  model.n_layer = 4, model.n_embd = 64, model.n_head = 4, model.block_size = 64, model.vocab_size = 512;
  TrainingConfig training;
  training.batch_size = 8;
  const device::DeviceInfo cpu = device::describe_device(at::kCPU);
  const ActivationForm form = activation_form(model, training, {}, cpu, {}, "flash");
  const report::MemoryUse whole = estimate_memory(model, training, form);
  training.execution.swap_activations = 3;
  const report::MemoryUse swapped = estimate_memory(model, training, form);
  EXPECT_NEAR(whole.activations - swapped.activations, swapped.host / 3, 1);
  training.execution.swap_activations.reset();
  EXPECT_NEAR(estimate_memory(model, training, form).host, swapped.host * 4 / 3, 1)
      << "all, until it is known how many";

  model::GPT gpt(model, at::kCPU, 1);
  gpt.set_operators(ops::fused_operators());
  gpt.train(true);
  gpt.set_activation_swap(std::make_shared<model::ActivationSwap>(3, std::make_shared<test::LateCopies>()));
  const at::Tensor ids = at::zeros({8, 64}, at::kLong);
  (void)gpt.loss(ids, ids, {});
  EXPECT_NEAR(static_cast<double>(gpt.swapped_bytes()), swapped.host, 0.1 * swapped.host);
}

TEST(SwappedLayers, AreTheFewestWithWhichTheRunFits) {
  ModelConfig model = gpt2(12, 12, 768);
  const ActivationForm form{.cuda = true};
  const auto chosen = [&](double bytes) {
    TrainingConfig training;
    training.batch_size = 16;
    training.execution.swap_activations.reset();
    choose_swapped_layers(model, training, form, {.available = bytes / 0.9});
    return *training.execution.swap_activations;
  };
  const auto needed = [&](int64_t layers) {
    TrainingConfig training;
    training.batch_size = 16;
    training.execution.swap_activations = layers;
    return estimate_memory(model, training, form).total();
  };
  EXPECT_EQ(chosen(1.01 * needed(0)), 0);
  EXPECT_EQ(chosen(1.001 * needed(7)), 7);
  EXPECT_EQ(chosen(0.99 * needed(12)), 12) << "where nothing is enough";
  EXPECT_LT(needed(7), needed(6));
}

}  // namespace
}  // namespace gpt::plan
