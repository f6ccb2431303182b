#include "gpt/plan/estimates.h"

#include <gtest/gtest.h>

#include "gpt/device/cards.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/precision.h"
#include "gpt/run/measured_memory.h"
#include "plan/gpt2.h"
#include "train/tiny_run.h"

namespace gpt::plan {
namespace {

TEST(Estimates, PartsAreThoseThatAreMeasured) {
  device::use_cpu_allocator();
  const data::Corpus corpus = some_corpus(/*lines=*/200);
  Config config = tiny_config(corpus);
  config.model.n_layer = 4, config.model.n_embd = 128, config.model.block_size = 64, config.model.dropout = 0;
  config.training.batch_size = 16, config.training.gradient_accumulation_steps = 1;
  const device::Precision precision;
  device::reset_cpu_memory_peak();
  TinyRun run(config, corpus, at::kCPU, precision);
  (void)run.train_to(3);
  const auto measured = run::measured_memory(run.state, run.step);
  if (!measured) GTEST_SKIP() << "the allocator that counts is not in use, as under the address sanitizer";
  const report::MemoryUse estimate =
      estimate_memory(config.model, config.training,
                      activation_form(config.model, config.training, {}, device::describe_device(at::kCPU), precision));
  EXPECT_EQ(estimate.weights, measured->weights);
  EXPECT_EQ(estimate.gradients, measured->gradients);
  EXPECT_EQ(estimate.optimizer, measured->optimizer);
  EXPECT_EQ(estimate.host, measured->host);
  EXPECT_NEAR(estimate.activations, measured->activations, 0.05 * measured->activations);
  EXPECT_GE(estimate.logits + estimate.workspace, 0.95 * measured->workspace);
}

TEST(Estimates, ParametersCostSixteenBytesEach) {
  TrainingConfig training;
  const auto estimate = estimate_memory(gpt2_small(), training, {});
  const double parameters = 124475904;  // GPT-2 with 50,304 rows of vocabulary
  EXPECT_EQ(estimate.weights + estimate.gradients + estimate.optimizer, 16 * parameters);
  EXPECT_EQ(static_cast<double>(checkpoint::checkpoint_bytes(gpt2_small(), {})), 12 * parameters);
}

// Each of four processes has a quarter, and to save it two pieces of the file, beyond which it takes more in an update on a CPU.
TEST(Estimates, ZeroDividesTheStateAmongTheProcesses) {
  const double moments = estimate_memory(gpt2_small(), {}, {}).optimizer;
  DistributedConfig distributed;
  distributed.processes = 4, distributed.zero = 1;
  const ActivationForm form = activation_form(gpt2_small(), {}, distributed, device::describe_device(at::kCPU), {});
  EXPECT_EQ(estimate_memory(gpt2_small(), {}, form).optimizer, moments / 4);
  const report::MemoryUse on_gpu =
      estimate_memory(gpt2_small(), {}, {.cuda = true, .state_share = 0.25, .checkpoint_parts = 4});
  EXPECT_EQ(on_gpu.optimizer, moments / 4);
  EXPECT_EQ(on_gpu.host, 2 * (16 << 20));
  distributed.processes = 1;
  EXPECT_EQ(activation_form(gpt2_small(), {}, distributed, device::describe_device(at::kCPU), {}).state_share, 1);
}

// A process has whole ones of Muon's matrices, and a quarter of all else.
TEST(Estimates, ZeroGivesEachProcessWholeMatricesOfMuon) {
  TrainingConfig training;
  training.optimizer.kind = OptimizerKind::muon;
  DistributedConfig distributed;
  distributed.processes = 4, distributed.zero = 1;
  const ActivationForm form =
      activation_form(gpt2_small(), training, distributed, device::describe_device(at::kCPU), {});
  EXPECT_NEAR(form.state_share, 0.25, 0.25 / 8);  // of 24 large matrices and as many smaller ones
  distributed.processes = 64;                     // more than there are large ones
  const double largest = 4.0 * 768 * 4 * 768, all = estimate_memory(gpt2_small(), training, {}).optimizer;
  EXPECT_GE(activation_form(gpt2_small(), training, distributed, device::describe_device(at::kCPU), {}).state_share,
            largest / all);
}

// A quarter of the sums; besides them a block that is filled, one that is sent, and the tied table, which the head begins.
TEST(Estimates, Zero2DividesTheGradientsToo) {
  constexpr double kAll = 124475904, kBlock = 7087872, kFinalNorm = 1536, kTables = 50304 * 768 + 1024 * 768;
  DistributedConfig distributed;
  distributed.processes = 4, distributed.zero = 2;
  const auto values = [&](const ModelConfig& model) {
    const ActivationForm form = activation_form(model, {}, distributed, device::describe_device(at::kCPU), {});
    return estimate_memory(model, {}, form).gradients / 4;
  };
  ModelConfig model = gpt2_small();
  EXPECT_EQ(values(model), kAll / 4 + 2 * kBlock + kFinalNorm + kTables);
  distributed.lanes = 8;  // of two lanes one is kept as all processes have sent it
  EXPECT_EQ(values(model), kAll + 2 * kBlock + kFinalNorm + kTables);
  distributed.lanes = 1, model.tie_weights = false;
  EXPECT_EQ(values(model), (kAll + 50304 * 768) / 4 + kBlock + kTables);
  distributed.processes = 1;
  EXPECT_EQ(values(model), kAll + 50304 * 768);
}

// A quarter of the blocks, what lies outside of them, and two blocks that are together.
TEST(Estimates, Zero3DividesTheWeightsOfBlocksToo) {
  constexpr double kAll = 124475904, kBlock = 7087872, kOutside = kAll - 12 * kBlock, kNorms = 25.0 * 2 * 768;
  DistributedConfig distributed;
  distributed.processes = 4, distributed.zero = 3;
  ActivationForm form = activation_form(gpt2_small(), {}, distributed, device::describe_device(at::kCPU), {});
  report::MemoryUse use = estimate_memory(gpt2_small(), {}, form);
  EXPECT_EQ(use.weights, 4 * (12 * kBlock / 4 + kOutside + 2 * kBlock));
  EXPECT_EQ(use.gradients, 4 * (kAll / 4 + 2 * kBlock + kOutside - 1536)) << "the final norm is alone";
  // Beside copies of 16 bits a quarter of all float32 values, and the normalizations'.
  form.compute_type = at::kBFloat16, form.end_to_end = true;
  use = estimate_memory(gpt2_small(), {}, form);
  EXPECT_EQ(use.weights, 4 * kAll / 4 + 2 * (kOutside + 2 * kBlock) + 4 * kNorms);
}

TEST(Estimates, MuonHasOneMomentumAndRoomForProducts) {
  TrainingConfig training;
  const report::MemoryUse adamw = estimate_memory(gpt2_small(), training, {});
  training.optimizer.kind = OptimizerKind::muon;
  const report::MemoryUse muon = estimate_memory(gpt2_small(), training, {});
  const double matrices = 12.0 * 12 * 768 * 768;
  EXPECT_EQ(adamw.optimizer - muon.optimizer, 4 * matrices);
  EXPECT_EQ(muon.workspace, adamw.workspace) << "the passes need more than the update";
  EXPECT_EQ(static_cast<double>(checkpoint::checkpoint_bytes(gpt2_small(), training)),
            static_cast<double>(checkpoint::checkpoint_bytes(gpt2_small(), {})) - 4 * matrices);
  // One token leaves less than the MLP's first and attention's last take: directions, results, a transpose, five squares each.
  ModelConfig tiny = gpt2(/*layers=*/1, /*heads=*/12, /*width=*/768);
  tiny.block_size = 1, tiny.vocab_size = 64;
  training.batch_size = 1;
  const report::MemoryUse least = estimate_memory(tiny, training, {});
  EXPECT_DOUBLE_EQ(least.activations + least.logits + least.workspace, 4.0 * ((3 * 4 + 5) + (2 + 5)) * 768 * 768);
}

TEST(Estimates, FewerBitsOfStateCostLess) {
  const double parameters = 124475904, embeddings = 768.0 * (50304 + 1024);
  const auto cost = [](StateDtype dtype, bool float32_embeddings = false) {
    TrainingConfig training;
    training.optimizer.state_dtype = dtype, training.optimizer.float32_embedding_state = float32_embeddings;
    const auto estimate = estimate_memory(gpt2_small(), training, {});
    const double bytes = estimate.weights + estimate.gradients + estimate.optimizer;
    EXPECT_EQ(static_cast<double>(checkpoint::checkpoint_bytes(gpt2_small(), training)), bytes - estimate.gradients);
    return bytes;
  };
  EXPECT_EQ(cost(StateDtype::bfloat16), 12 * parameters);
  EXPECT_EQ(cost(StateDtype::int8), (10 + 8.0 / 256) * parameters);
  EXPECT_EQ(cost(StateDtype::int8, /*float32_embeddings=*/true), cost(StateDtype::int8) + (6 - 8.0 / 256) * embeddings);
}

TEST(Estimates, WhatIsOffloadedLeavesTheDevice) {
  TrainingConfig training;
  const auto before = estimate_memory(gpt2_small(), training, {.cuda = true});
  const auto moved = [&](double share) {
    training.optimizer.offload = share;
    const auto after = estimate_memory(gpt2_small(), training, {.cuda = true});
    EXPECT_EQ(after.total() + after.host, before.total());
    EXPECT_EQ(checkpoint::checkpoint_bytes(gpt2_small(), training), checkpoint::checkpoint_bytes(gpt2_small(), {}));
    return after.host;
  };
  EXPECT_EQ(moved(0), 0);
  EXPECT_NEAR(moved(0.5), before.optimizer / 2, before.optimizer / 20) << "in whole tensors";
  EXPECT_EQ(moved(1), before.optimizer);
}

// The graphs keep the temporary memory of a step, so that evaluations take theirs besides: the stream and its sum with a branch,
// and the MLP's values before and after GELU.
TEST(Estimates, EvaluationsTakeMemoryBesideARecordedStep) {
  TrainingConfig training;
  training.batch_size = 16;
  training.execution.loss_chunk_rows = 64;
  const auto eager = estimate_memory(gpt2_small(), training, {.cuda = true}),
             recorded = estimate_memory(gpt2_small(), training, {.cuda = true, .is_recorded = true});
  EXPECT_EQ(recorded.total() - eager.total(), 16 * 1024 * (2 * 768 + 2 * 3072) * 4.0);
  training.batch_size = 1;
  training.execution.loss_chunk_rows = 1024;
  const double large_head = estimate_memory(gpt2_small(), training, {.cuda = true, .is_recorded = true}).total() -
                            estimate_memory(gpt2_small(), training, {.cuda = true}).total();
  EXPECT_EQ(large_head, 1024 * (768 + 50304) * 4.0);
  TrainingConfig asked;
  asked.execution.compile_mode = CompileMode::reduce_overhead;
  EXPECT_FALSE(activation_form(gpt2_small(), asked, {}, device::describe_device(at::kCPU), {}).is_recorded)
      << "a CPU has no graphs";
}

// As parallel::Division has it.
TEST(Estimates, AStepIsRecordedWhereZeroHasNobodyToDivideItWith) {
  const device::DeviceInfo card = device::find_card("A100")->describe();
  DistributedConfig distributed;
  const auto is_recorded = [&] {
    return activation_form(gpt2_small(), {}, distributed, card, {}, "flash").is_recorded;
  };
  EXPECT_TRUE(is_recorded());
  distributed.zero = 3;
  EXPECT_TRUE(is_recorded());
  distributed.processes = 2;
  EXPECT_FALSE(is_recorded());
}

TEST(Estimates, TheLargestBatchIsTheLargest) {
  const ActivationForm form{at::kBFloat16, true, true};
  TrainingConfig training;
  for (double bytes : {4e9, 24e9, 80e9}) {
    const auto batch = largest_batch_size(gpt2_small(), training, form, bytes);
    ASSERT_TRUE(batch) << bytes;
    training.batch_size = *batch;
    EXPECT_LE(estimate_memory(gpt2_small(), training, form).total(), bytes);
    training.batch_size = *batch + 1;
    EXPECT_GT(estimate_memory(gpt2_small(), training, form).total(), bytes);
  }
  EXPECT_FALSE(largest_batch_size(gpt2_small(), training, form, 1e9));
}

}  // namespace
}  // namespace gpt::plan
