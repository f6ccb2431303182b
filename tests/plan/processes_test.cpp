// What several processes take, send and gain, against numbers worked out by hand.
#include "gpt/plan/processes.h"
#include "gpt/plan/sent_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

#include "gpt/device/cards.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/model_checks.h"
#include "gpt/plan/resolve.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

using Status = Check::Status;

// 4 bytes for each of 124,475,904 parameters; every tensor of GPT-2 small has a multiple of 256 of them.
constexpr double kGradients = 4.0 * 124'475'904;
constexpr double kBucket = 25 << 20;

double number_of(const Check& check, const std::string& name) {
  const auto found =
      std::find_if(check.values.begin(), check.values.end(), [&](const auto& value) { return value.first == name; });
  return found == check.values.end() ? NAN : std::get<double>(found->second);
}

TEST(SentBytes, AreTwiceTheGradientsOfTheOthers) {
  Config config = gpt2_small_run(8);
  EXPECT_EQ(sent_bytes(config, /*end_to_end=*/false, 1), 0);
  EXPECT_EQ(sent_bytes(config, false, 2), kGradients);
  EXPECT_EQ(sent_bytes(config, false, 4), 1.5 * kGradients);
  config.distributed.reduce_dtype = ReduceDtype::bfloat16;
  EXPECT_EQ(sent_bytes(config, false, 4), 0.75 * kGradients);
  EXPECT_EQ(sent_bytes(config, /*end_to_end=*/true, 4), 0.75 * kGradients);  // they have 16 bits already
}

// Values in the type in which they are kept instead of sums, and a norm of four bytes for each 256 values, there and back.
TEST(SentBytes, AreGradientsAndValuesWithZero) {
  Config config = gpt2_small_run(8);
  config.distributed.zero = 1;
  EXPECT_EQ(sent_bytes(config, /*end_to_end=*/false, 4), 1.5 * kGradients * (1 + 1.0 / 256));
  config.distributed.reduce_dtype = ReduceDtype::bfloat16;
  EXPECT_EQ(sent_bytes(config, false, 4), 0.75 * (kGradients / 2 + kGradients) + 1.5 * kGradients / 256);
}

// In every round of micro-batches, of which the processes have three.
TEST(SentBytes, AreGradientsOfEachMicroBatchWithZero2) {
  Config config = gpt2_small_run(8, 10);
  config.distributed.zero = 2;
  EXPECT_EQ(sent_bytes(config, /*end_to_end=*/false, 4), 0.75 * (3 * kGradients + kGradients) + 1.5 * kGradients / 256);
}

// Weights in three rounds: those of a block forward and backward, but that the last one's are there still when the backward pass begins,
// and the first one's when the next round does; and once what lies outside blocks.
TEST(SentBytes, AreWeightsOfEachPassToWithZero3) {
  constexpr double kBlock = 4.0 * 7087872, kOutside = kGradients - 12 * kBlock, kNorms = 4.0 * 25 * 2 * 768;
  Config config = gpt2_small_run(8, 10);
  config.distributed.zero = 3;
  const double weights = (1 + 2 * 3 * 11) * kBlock + kOutside;
  EXPECT_EQ(sent_bytes(config, /*end_to_end=*/false, 4), 0.75 * (3 * kGradients + weights) + 1.5 * kGradients / 256);
  // Copies of 16 bits, and the normalizations' vectors, which are read in float32, as a sum.
  config.training.precision.gradient_dtype = GradientDtype::float32;
  EXPECT_EQ(sent_bytes(config, /*end_to_end=*/true, 4),
            0.75 * (3 * kGradients + weights / 2) + 1.5 * (kGradients / 256 + kNorms));
}

// Two processes divide the model, and two such groups the ten micro-batches: sums of 1024 x 8 x 768 values, four in each of 12 layers and
// two more, four numbers for each token, and the gradients of 25 norms. Of the gradients each process has half, but for what both have.
// What is computed again needs three halves of a sum in each layer.
TEST(SentBytes, AreSumsOfActivationsWhereTheModelIsDivided) {
  Config config = gpt2_small_run(8, 10);
  config.distributed.processes = 4, config.distributed.tensor_parallel = 2;
  constexpr double kTokens = 8 * 1024, kSum = kTokens * 768 * 4, kNumbers = kTokens * 4 * 4,
                   kOfNorms = 25 * 2 * 768 * 4, kWhole = (1024 + 12 * (4 + 2) + 2) * 768;
  const double sent = sent_bytes(config, /*end_to_end=*/false, 4),
               within = 5 * ((4 * 12 + 2) * kSum + kNumbers + kOfNorms);
  EXPECT_NEAR(sent - within, 4 * ((124'475'904 - kWhole) / 2 + kWhole), 1e-5 * sent);
  config.training.execution.gradient_checkpointing = GradientCheckpointing::selective;
  EXPECT_NEAR(sent_bytes(config, false, 4) - sent, 5 * 12 * 1.5 * kSum, 1e-6 * sent);
}

// The weights of a process's part of the model, sent to the one other process that has the same part, in five rounds. Both parts of a block
// have the biases and norms behind sums, and the halves of a bias of queries, keys and values are padded by 128 values.
TEST(SentBytes, AreWeightsOfPartsOfLayersToWithZero3) {
  constexpr double kWhole = (4 + 2) * 768, kBlock = 4 * ((7087872 - kWhole) / 2 + kWhole + 128),
                   kOutside = 4 * (50304 * 768 / 2 + (1024 + 2) * 768), kAll = 12 * kBlock + kOutside;
  Config config = gpt2_small_run(8, 10);
  config.distributed.processes = 4, config.distributed.tensor_parallel = 2;
  const double within = sent_bytes(config, /*end_to_end=*/false, 4) - kAll;
  config.distributed.zero = 3;
  const double weights = (1 + 2 * 5 * 11) * kBlock + kOutside;
  EXPECT_EQ(sent_bytes(config, false, 4) - within, (5 * kAll + weights) / 2 + kAll / 256);
}

TEST(ExchangeBytes, AreFurtherLanesAndWhatSumsTake) {
  Config config = gpt2_small_run(8);
  EXPECT_EQ(exchange_bytes(config, /*end_to_end=*/false, 1), 0);
  EXPECT_EQ(exchange_bytes(config, false, 4), 3 * kBucket);
  config.distributed.zero = 1;
  EXPECT_EQ(exchange_bytes(config, false, 4), 3 * kBucket + 3 * kBucket / 4) << "the parts of new weights";
  config.distributed.reduce_dtype = ReduceDtype::bfloat16;
  EXPECT_EQ(exchange_bytes(config, false, 4), 3 * kBucket / 2 * 2 + kBucket + 3 * kBucket / 4) << "and float32 of one";
  config.distributed = {};
  config.distributed.lanes = 8;
  EXPECT_EQ(exchange_bytes(config, false, 1), 7 * kGradients);
  EXPECT_EQ(exchange_bytes(config, false, 4), kGradients + 3 * kBucket);
  config.distributed.zero = 2;
  EXPECT_EQ(exchange_bytes(config, false, 4), 3 * kBucket + 3 * kBucket / 4) << "lanes count with the gradients";
  config.distributed.zero = 3;
  EXPECT_EQ(exchange_bytes(config, false, 4), 3 * kBucket + 3 * kBucket / 4) << "the tables are longer than a block";
  config.distributed.zero = 0;
  config.model.n_layer = 1, config.model.n_embd = 64, config.model.vocab_size = 64, config.distributed.lanes = 1;
  const double few = exchange_bytes(config, false, 4);  // buffers are no larger than what is sent
  EXPECT_EQ(few, sent_bytes(config, false, 2));
  EXPECT_LT(few, 2e6);
}

// A half of the half of each layer, what lies outside of blocks, and two halves of blocks that are together; as in SentBytes.
TEST(MemoryOfEach, IsAPartOfPartsOfLayersWithZero3) {
  constexpr double kWhole = (4 + 2) * 768, kBlock = (7087872 - kWhole) / 2 + kWhole + 128,
                   kOutside = 50304 * 768 / 2 + (1024 + 2) * 768, kAll = 12 * kBlock + kOutside;
  DistributedConfig distributed;
  distributed.processes = 4, distributed.tensor_parallel = 2, distributed.zero = 3;
  const ActivationForm form = activation_form(gpt2_small(), {}, distributed, device::describe_device(at::kCPU), {});
  const report::MemoryUse use = estimate_memory(gpt2_small(), {}, form);
  EXPECT_EQ(use.weights, 4 * (12 * kBlock / 2 + kOutside + 2 * kBlock));
  EXPECT_EQ(use.gradients, 4 * (kAll / 2 + 2 * kBlock + kOutside - 1536)) << "the final norm is alone";
  EXPECT_EQ(use.optimizer, 8 * kAll / 2);
}

TEST(MemoryBudgetOfEach, DividesWhatIsSharedOnAMachine) {
  const MemoryBudget all{.available = 80e9, .program = 1e9, .host = 64e9};
  const MemoryBudget on_cpu = of_each(all, at::kCPU, 4), on_gpus = of_each(all, at::Device(at::kCUDA, 0), 4);
  EXPECT_EQ(on_cpu.available, 20e9);
  EXPECT_EQ(on_cpu.program, 1e9);
  EXPECT_EQ(on_gpus.available, 80e9);
  EXPECT_EQ(on_gpus.host, 16e9);
}

TEST(MemoryBudgetOfEach, IsWhatAllOfAMachineMayUseOnceTheyRun) {
  const double share = memory_budget(at::kCPU, 0.02).available;
  EXPECT_EQ(memory_budget(at::kCPU, 0.02, /*processes=*/4).available, share / 4);
}

TEST(DivideUpdate, KeepsTheSequencesOfAnUpdate) {
  Config config = gpt2_small_run(/*batch_size=*/12, /*gradient_accumulation_steps=*/1);
  divide_update(config, 4);
  EXPECT_EQ(config.training.batch_size, 3);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(config.distributed.processes, 4);
}

TEST(DivideUpdate, GivesEachMicroBatchALaneOfItsOwnWithZero2) {
  Config config = gpt2_small_run(2, 8);
  config.distributed.zero = 2;
  divide_update(config, 4);
  config.distributed.lanes = 8;
  divide_update(config, 4);
  config.distributed.lanes = 4;
  EXPECT_THROW(divide_update(config, 4), Error);
  config.distributed.zero = 1;
  divide_update(config, 4);
  config.distributed.zero = 3;
  EXPECT_THROW(divide_update(config, 4), Error);
  config.distributed.zero = 2;
  divide_update(config, 1);
}

TEST(BusiestPart, HasTheMostMicroBatches) {
  Config config = gpt2_small_run(2, 10);
  config.distributed.lanes = 8;
  keep_busiest_part(config, 4);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 3);
  EXPECT_EQ(config.training.batch_size, 2);
  EXPECT_EQ(config.distributed.lanes, 2);
  EXPECT_EQ(config.training.precision.gradient_dtype, GradientDtype::float32);
  Config alone = gpt2_small_run(2, 1);
  keep_busiest_part(alone, 1);
  EXPECT_EQ(alone.training.precision.gradient_dtype, GradientDtype::automatic);
}

TEST(SecondsTogether, AreMoreWhereThreadsTakeTurns) {
  EXPECT_EQ(seconds_together(0.5, /*processes=*/4, /*threads=*/2, /*cores=*/8), 0.5);
  EXPECT_EQ(seconds_together(0.5, 4, 2, 4), 1.0);
  EXPECT_EQ(seconds_together(0.5, 8, /*threads=*/0, 4), 0.5);  // on a GPU each
}

TEST(LinkOf, IsNvlinkWhereItJoinsAllCards) {
  const auto link = [](const char* card) { return device::link_of(device::find_card(card)->describe()); };
  EXPECT_EQ(link("H100 SXM").bandwidth, 450);
  EXPECT_EQ(link("B200").name, "NVLink 5");
  EXPECT_EQ(link("H100 PCIe").name, "PCIe 5 x16");
  EXPECT_EQ(link("RTX 4090").bandwidth, 31.5);
  EXPECT_EQ(link("RTX 4060 Ti").name, "PCIe 4 x8");
  EXPECT_EQ(link("T4").name, "PCIe 3 x16");
  const device::DeviceInfo unknown = device::describe_gpu(at::Device(at::kCUDA, 0), "Another card", 1 << 30, 12, 0);
  EXPECT_EQ(device::link_of(unknown).name, "PCIe 5 x16");
}

// Eight micro-batches of 100 ms among four GPUs.
ProcessesPlan four() {
  return {.processes = 4,
          .threads = 0,
          .micro_batches = 8,
          .memory = 3e9,
          .sent = 1.5e9,
          .may_send_less = true,
          .one = 0.8,
          .computing = 0.2,
          .sending = 0.05,
          .computing_source = "tried",
          .sending_source = "computed"};
}

TEST(CheckProcesses, SaysWhatEachDoesAndWhatIsGained) {
  const Check check = check_processes(four());
  EXPECT_EQ(check.status, Status::pass);
  EXPECT_EQ(check.detail,
            "4 on a GPU each: each takes about 3.00 GB, computes 2 of the 8 micro-batches of an update, and sends "
            "1.50 GB; a step is 200 ms of computing (tried) and 50 ms of sending beyond it (computed)");
  EXPECT_EQ(check.answer.text,
            "4: 3.2 times the tokens/s of one, limited by sending, which takes 20 % of a step; "
            "distributed.reduce_dtype: bfloat16 would halve it");
  EXPECT_DOUBLE_EQ(number_of(check, "gain"), 3.2);
  EXPECT_EQ(number_of(check, "bytes_sent_per_update"), 1.5e9);
}

TEST(CheckProcesses, NamesWhatCostsMost) {
  ProcessesPlan plan = four();
  plan.micro_batches = 5, plan.one = 0.5;  // two of them at most, and 125 ms would be an even share
  EXPECT_TRUE(check_processes(plan).answer.text.ends_with(
      "limited by the 5 micro-batches of an update, which 4 processes cannot share evenly"));
  plan = four();
  plan.computing = 0.35;
  EXPECT_TRUE(
      check_processes(plan).answer.text.ends_with("limited by the update of the weights, which each computes whole"));
}

TEST(CheckProcesses, StagesWaitAtBothEndsOfAnUpdate) {
  ProcessesPlan plan = four();
  plan.stages = 4, plan.computing = 0.4, plan.sending = 0.01;
  EXPECT_EQ(plan.most_micro_batches(), 8);
  EXPECT_DOUBLE_EQ(plan.bubble(), 3.0 / 11);
  const Check check = check_processes(plan);
  EXPECT_NE(check.detail.find("one of 4 stages of the model for 8 of the 8 micro-batches"), std::string::npos);
  EXPECT_NE(check.detail.find("each waits for 27 % of an update"), std::string::npos) << check.detail;
  EXPECT_NE(check.answer.text.find("limited by stages that wait for each other for 27 % of the time"),
            std::string::npos)
      << check.answer.text;
}

TEST(CheckProcesses, OnACpuTheGainIsAnUpperBound) {
  ProcessesPlan plan = four();
  plan.threads = 1, plan.may_send_less = false;
  EXPECT_EQ(check_processes(plan).answer.text,
            "4: at most 3.2 times the tokens/s of one, limited by sending, which takes 20 % of a step");
}

TEST(CheckProcesses, OneMayBeFaster) {
  ProcessesPlan plan = four();
  plan.threads = 1, plan.computing = 0.9, plan.sending = 0.1;
  const Check check = check_processes(plan);
  EXPECT_EQ(check.status, Status::warn);
  EXPECT_EQ(check.fix, "set distributed.processes: 1, which is faster");
  EXPECT_EQ(check.answer.text, "one: with 4 a step takes 1.25 times as long, because of the cores, which they share");
}

TEST(CheckProcesses, WithoutTimesNothingIsRecommended) {
  ProcessesPlan plan = four();
  plan.one = plan.computing = plan.sending = 0;
  const Check check = check_processes(plan);
  EXPECT_TRUE(check.detail.ends_with("and sends 1.50 GB")) << check.detail;
  EXPECT_EQ(check.answer.question, "");
}

}  // namespace
}  // namespace gpt::plan
