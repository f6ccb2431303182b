#include "gpt/plan/model_checks.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <variant>

#include "gpt/layout/parameter_table.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

using Status = Check::Status;

TEST(CheckParameters, CountsByGroup) {
  const Check check = check_parameters(gpt2_small());
  // 50,304 x 768 + 1,024 x 768; 12 x (768 x 2,304 + 2,304 + 768 x 768 + 768); 12 x (2 x 768 x 3,072 + 3,072 + 768);
  // 25 x 2 x 768
  EXPECT_EQ(check.detail, "124.48M: embedding 39.42M, attention 28.35M, mlp 56.67M, norm 38.4k");
}

TEST(CheckVocabulary, UnpaddedIsSlowOnAGpuOnly) {
  ModelConfig model = gpt2_small();
  EXPECT_EQ(check_vocabulary(model, /*cuda=*/true).status, Status::pass);
  model.vocab_multiple = 1;
  EXPECT_EQ(check_vocabulary(model, /*cuda=*/true).status, Status::warn);
  EXPECT_EQ(check_vocabulary(model, /*cuda=*/false).status, Status::pass);
}

TEST(CheckAttention, SaysWhyFlashIsNotTaken) {
  ModelConfig model = gpt2_small();
  EXPECT_EQ(check_attention(model, true, "cudnn").status, Status::pass);
  EXPECT_EQ(check_attention(model, true, "math: float32").status, Status::warn);
  EXPECT_EQ(check_attention(model, false, "flash").status, Status::pass);
  model.n_head = 64;  // heads of 12
  EXPECT_EQ(check_attention(model, true, "efficient").status, Status::warn);
}

TEST(CheckAttention, NamesWindowsAndThoseThatChangeNothing) {
  ModelConfig model = gpt2_small();
  model.attention_window = 256;
  const Check check = check_attention(model, false, "flash");
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_EQ(check.detail, "flash kernel, a window of 256 positions in 9 of 12 layers");
  model.attention_window = 1024;
  EXPECT_EQ(check_attention(model, false, "flash").status, Status::warn);
  EXPECT_EQ(idle_attention(model), "model.attention_window 1024 changes nothing: the sequences have only 1,024 tokens");
  model.attention_window = 256, model.window_pattern = "LLL";
  EXPECT_EQ(
      idle_attention(model),
      "model.attention_window 256 changes nothing: window_pattern LLL leaves none of 12 layers windowed, because the last "
      "one is always full");
  model.attention_window = 0;
  EXPECT_EQ(idle_attention(model), "");
}

TEST(CheckAttention, NamesBlocksAndThoseThatChangeNothing) {
  ModelConfig model = gpt2_small();
  model.attention = AttentionForm::blocks;
  const Check check = check_attention(model, false, "flash");
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_EQ(check.detail,
            "flash kernel, attention to 4 blocks that each query chooses and its own, of 64 positions each");
  model.attention_top_blocks = 15;
  EXPECT_EQ(check_attention(model, false, "flash").status, Status::warn);
  EXPECT_EQ(
      idle_attention(model),
      "model.attention: blocks changes nothing: no query has more than 15 complete blocks of 64 positions before its own");
  model.attention = AttentionForm::full;
  EXPECT_EQ(idle_attention(model), "model.attention_top_blocks 15 changes nothing: model.attention is full");
  model.attention_top_blocks = 4, model.attention_block = 128;
  EXPECT_EQ(idle_attention(model), "model.attention_block 128 changes nothing: model.attention is full");
}

TEST(CheckMemory, NamesTheMicroBatchThatFits) {
  const ActivationForm form{at::kBFloat16, true, true};
  TrainingConfig training;
  training.batch_size = 64;
  training.gradient_accumulation_steps = 3;
  EXPECT_EQ(check_memory(gpt2_small(), training, form, {.available = 400e9}).status, Status::pass);

  const Check check = check_memory(gpt2_small(), training, form, {.available = 24e9});
  EXPECT_EQ(check.status, Status::fail);
  int64_t batch_size = 0, accumulation = 0;
  ASSERT_EQ(std::sscanf(check.fix.c_str(), "set training.batch_size: %ld and training.gradient_accumulation_steps: %ld",
                        &batch_size, &accumulation),
            2)
      << check.fix;
  EXPECT_EQ(batch_size * accumulation, 64 * 3);
  training.batch_size = batch_size;
  training.gradient_accumulation_steps = accumulation;
  EXPECT_EQ(check_memory(gpt2_small(), training, form, {.available = 24e9}).status, Status::pass);
}

TEST(CheckMemory, NearlyFullIsAWarning) {
  TrainingConfig training;
  const double total = estimate_memory(gpt2_small(), training, {}).total();
  EXPECT_EQ(check_memory(gpt2_small(), training, {}, {.available = total * 1.05}).status, Status::warn);
  EXPECT_EQ(check_memory(gpt2_small(), training, {}, {.available = total * 0.99}).status, Status::fail);
}

TEST(CheckMemory, WhatIsOffloadedMustFitIntoTheHost) {
  TrainingConfig training;
  training.optimizer.offload = 1;
  const double state = estimate_memory(gpt2_small(), training, {}).host;
  MemoryBudget memory{.available = 400e9, .host = state};
  EXPECT_EQ(check_memory(gpt2_small(), training, {}, memory).status, Status::pass);
  memory.host = state - 1;
  const Check check = check_memory(gpt2_small(), training, {}, memory);
  EXPECT_EQ(check.status, Status::fail);
  EXPECT_NE(check.fix.find("training.offload_optimizer"), std::string::npos) << check.fix;
}

TEST(CheckMemory, AModelThatNeverFitsSaysSo) {
  const Check check = check_memory(gpt2_small(), {}, {}, {.available = 1e9});
  EXPECT_EQ(check.status, Status::fail);
  EXPECT_NE(check.fix.find("model.n_layer"), std::string::npos) << check.fix;
}

TEST(CheckCompute, FollowsPalmsRule) {
  // 6 x (124,475,904 - 1,024 x 768) + 12 x 12 x 768 x 1,024
  EXPECT_EQ(layout::flops_per_token(gpt2_small()), 855383040);
  TrainingConfig training;
  training.batch_size = 8;
  training.schedule.max_steps = 1000;
  const Check check = check_compute(gpt2_small(), training, run::plan_run(training, 10), 1e15);
  // 8,192,000 tokens for 124,475,904 parameters, 20 times as many being 30,390 steps of 8,192, in epochs of 10 steps.
  EXPECT_EQ(
      check.detail,
      "about 18s, at 40 % of the 1.00 PFLOP/s that matrix products reach here; 855.38 MFLOP per token, 7.01 TFLOP per step, 7.01 "
      "PFLOP in all; 8.19M tokens are 0.0658 per parameter, where Chinchilla's rule of 20 would take 30,390 epochs");
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_EQ(check_compute(gpt2_small(), training, run::plan_run(training, 10), 1e11).status, Status::warn)
      << "two days";
}

TEST(CheckCompute, SaysWhatShareMuonTakes) {
  TrainingConfig training;
  training.batch_size = 2, training.schedule.max_steps = 1000;
  EXPECT_EQ(describe_muon(gpt2_small(), training), "");
  training.optimizer.kind = OptimizerKind::muon;
  // In each of 12 blocks four matrices of 768 by 768, 30 x 768^3, and two of 3,072 by 768, 90 x 768^3, beside 1.75 TFLOP of 2,048 tokens.
  const std::string share = "Newton-Schulz takes 48 % of the operations of a step, 1.63 TFLOP for 72 matrices";
  EXPECT_EQ(describe_muon(gpt2_small(), training), share + "; a larger training.total_batch_size would lower that");
  const Check check = check_compute(gpt2_small(), training, run::plan_run(training, 10), 1e15);
  EXPECT_NE(check.detail.find("3.38 TFLOP per step"), std::string::npos) << check.detail;
  EXPECT_NE(check.detail.find(share), std::string::npos) << check.detail;
  training.batch_size = 512;
  EXPECT_EQ(describe_muon(gpt2_small(), training).find("Newton-Schulz takes 0.4 %"), 0u);
  EXPECT_EQ(describe_muon(gpt2_small(), training, /*processes=*/256).find("Newton-Schulz takes 48 %"), 0u);
  EXPECT_EQ(describe_muon(gpt2_small(), training, 256, /*parts_of_muon=*/256).find("Newton-Schulz takes 0.4 %"), 0u);
}

TEST(CheckMemory, AnswersWhetherItFitsAndNamesEveryPart) {
  TrainingConfig training;
  training.batch_size = 16;
  const ActivationForm form{at::kBFloat16, true, true};
  const report::MemoryUse estimate = estimate_memory(gpt2_small(), training, form);
  const MemoryBudget memory{.available = 1.5 * estimate.total(), .program = 1e8, .data = 2e8};
  const Check check = check_memory(gpt2_small(), training, form, memory);
  double sum = 0, needed = 0;
  int64_t largest = 0;
  for (const auto& [name, value] : check.values) {
    if (name == "needed_bytes") needed = std::get<double>(value);
    if (name == "largest_batch_size") largest = std::get<int64_t>(value);
    if (name != "needed_bytes" && name != "available_bytes" && name != "largest_batch_size" &&
        name != "checkpoint_copy")
      sum += std::get<double>(value);
  }
  EXPECT_DOUBLE_EQ(needed, estimate.total() + 3e8);
  EXPECT_DOUBLE_EQ(sum, needed);
  EXPECT_GT(estimate.logits, 0) << "the head's vocabulary is the peak of a small model";
  EXPECT_NE(check.detail.find(", data 200 MB, activations "), std::string::npos) << check.detail;
  EXPECT_TRUE(check.answer.text.starts_with("yes: it needs about ")) << check.answer.text;
  training.batch_size = largest;
  EXPECT_EQ(check_memory(gpt2_small(), training, form, memory).status, Status::pass);
  training.batch_size = largest + 1;
  EXPECT_EQ(check_memory(gpt2_small(), training, form, memory).status, Status::warn);
  EXPECT_TRUE(check_memory(gpt2_small(), training, form, {.available = 1e9})
                  .answer.text.ends_with(", and there is 1.00 GB; not even one sequence would fit"));
}

TEST(CheckMemory, TheProgramCountsToo) {
  const ActivationForm form;
  TrainingConfig training;
  const double total = estimate_memory(gpt2_small(), training, form).total();
  EXPECT_EQ(check_memory(gpt2_small(), training, form, {.available = 1.2 * total}).status, Status::pass);
  EXPECT_EQ(check_memory(gpt2_small(), training, form, {.available = 1.2 * total, .program = 0.3 * total}).status,
            Status::fail);
}

// Processes that write a checkpoint between them copy their parts.
TEST(CheckMemory, TheCopyForCheckpointsIsAProcesssOwn) {
  const auto copy = [](const ActivationForm& form) {
    for (const auto& [name, value] : check_memory(gpt2_small(), {}, form, {.available = 1e10}).values)
      if (name == "checkpoint_copy") return std::get<double>(value);
    return 0.0;
  };
  const auto file = static_cast<double>(checkpoint::checkpoint_bytes(gpt2_small(), {}));
  EXPECT_EQ(copy({}), file);
  EXPECT_EQ(copy({.state_share = 0.25, .checkpoint_parts = 4}), file / 4);
}

TEST(MemoryBudget, IsAtMostTheFractionOfTheDevice) {
  const auto all = static_cast<double>(device::describe_device(at::kCPU).memory_bytes);
  EXPECT_EQ(memory_budget(at::kCPU, 0.02).available, 0.02 * all);
  EXPECT_GT(memory_budget(at::kCPU, 1).available, 0.02 * all);
}

}  // namespace
}  // namespace gpt::plan
