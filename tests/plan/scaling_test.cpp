// Which arrangement is chosen for many devices, and that what the documentation says beside published runs is what the model says.
#include "gpt/plan/scaling.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "gpt/core/format.h"
#include "gpt/device/cards.h"
#include "gpt/plan/card_estimate.h"
#include "plan/gpt2.h"

namespace gpt::plan {
namespace {

Scenario on_cards(const char* name, const Config& config, double gigabits_of_machine) {
  const device::Card card = *device::find_card(name);
  Scenario scenario{.config = config,
                    .device = card.describe(),
                    .precision = {},
                    .attention = "flash",
                    .memory = {},
                    .network = {},
                    .compute = {}};
  scenario.precision = device::resolve_precision(config.training.precision, scenario.device);
  scenario.memory = card_memory(scenario.device);
  scenario.network = join_cards(scenario.device, 8);
  scenario.network.between = link_between(14e-6, gigabits_of_machine * 1e9);
  scenario.compute = [card, dtype = scenario.precision.dtype](const Config& asked, const ActivationForm& form) {
    return estimate_parts(asked.model, asked.training, form, card, dtype);
  };
  return scenario;
}

Config gpt2_run(int64_t batch_size, int64_t micro_batches = 1) { return gpt2_small_run(batch_size, micro_batches); }

TEST(FastestMesh, ASmallModelIsNotDivided) {
  const Scenario scenario = on_cards("H100 SXM", gpt2_run(32, 2), 3200);
  const auto one = fastest_mesh(scenario, 1), eight = fastest_mesh(scenario, 8);
  ASSERT_TRUE(one && eight);
  EXPECT_EQ(one->tokens(), 64 * 1024);
  EXPECT_EQ(one->limit, "computing");
  EXPECT_EQ(eight->tokens(), 8 * one->tokens()) << "weak scaling";
  EXPECT_EQ(eight->config.distributed.tensor_parallel, 1);
  EXPECT_LT(eight->config.distributed.zero, 3);
  const double gain = eight->tokens_per_second() / one->tokens_per_second();
  EXPECT_GT(gain, 7);
  EXPECT_LT(gain, 8);
  EXPECT_EQ(eight->config.training.gradient_accumulation_steps, 16) << "two for each";
}

TEST(FastestMesh, WhatDoesNotFitOneDeviceIsDivided) {
  Config config;
  config.model = gpt2(48, 25, 1600);
  config.training.batch_size = 1;
  Scenario scenario = on_cards("RTX 4090", config, 100);
  scenario.pipeline_parallel = 1;
  const auto one = fastest_mesh(scenario, 1), eight = fastest_mesh(scenario, 8);
  ASSERT_TRUE(one && eight);
  EXPECT_FALSE(one->fits) << "18 bytes for each of 1.5 billion parameters";
  EXPECT_TRUE(eight->fits);
  EXPECT_GT(eight->config.distributed.zero, 0);
  EXPECT_LT(eight->memory, scenario.memory.available);
}

// What divides more than the fastest would have to be 5 % faster.
TEST(FastestMesh, TakesTheArrangementThatIsAskedFor) {
  Scenario scenario = on_cards("H100 SXM", gpt2_run(32), 3200);
  const double best = fastest_mesh(scenario, 64)->tokens_per_second();
  for (scenario.zero = 0; *scenario.zero <= 3; ++*scenario.zero)
    EXPECT_LE(fastest_mesh(scenario, 64)->tokens_per_second(), 1.05 * best) << *scenario.zero;
  scenario.zero = 2, scenario.tensor_parallel = 4;
  const auto asked = fastest_mesh(scenario, 64);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->config.distributed.zero, 2);
  EXPECT_EQ(asked->config.distributed.tensor_parallel, 4);
  scenario.zero = 3;
  EXPECT_EQ(fastest_mesh(scenario, 64)->config.distributed.tensor_parallel, 4);
  scenario.zero = 1, scenario.tensor_parallel = 1, scenario.pipeline_parallel = 4;
  EXPECT_EQ(fastest_mesh(scenario, 64)->config.distributed.pipeline_parallel, 4);
  scenario.network.within = scenario.network.between = {};
  EXPECT_TRUE(fastest_mesh(scenario, 64)->limit.starts_with("stages, which wait for each other ("))
      << fastest_mesh(scenario, 64)->limit;
  scenario.pipeline_parallel = 1, scenario.tensor_parallel = 5;
  EXPECT_FALSE(fastest_mesh(scenario, 64)) << "5 does not divide 64";
}

// A micro-batch that does not fit is halved; one that is left open is as large as fits.
TEST(FastestMesh, TakesTheLargestMicroBatchThatFits) {
  const Scenario asked = on_cards("RTX 4090", gpt2_run(256), 100);
  const auto plan = fastest_mesh(asked, 1);
  ASSERT_TRUE(plan && plan->fits);
  const int64_t batch = plan->config.training.batch_size;
  EXPECT_LT(batch, 256);
  EXPECT_EQ(batch * plan->config.training.gradient_accumulation_steps, 256);
  Config open = gpt2_run(0);
  open.training.total_batch_size = 256;
  EXPECT_EQ(fastest_mesh(on_cards("RTX 4090", open, 100), 1)->config.training.batch_size, batch);
}

TEST(FastestMesh, AnUpdateThatKeepsItsSequencesHasTooFewForManyDevices) {
  Scenario scenario = on_cards("H100 SXM", gpt2_run(4, 16), 3200);
  scenario.keeps_batch = true;
  const auto eight = fastest_mesh(scenario, 8);
  ASSERT_TRUE(eight);
  EXPECT_EQ(eight->tokens(), 64 * 1024);
  EXPECT_FALSE(fastest_mesh(scenario, 4096)) << "64 sequences";
  scenario.config = gpt2_run(1, 12);
  scenario.tensor_parallel = 1, scenario.network.within = {};
  EXPECT_TRUE(fastest_mesh(scenario, 8)->limit.starts_with("micro-batches, of which some devices have fewer ("))
      << fastest_mesh(scenario, 8)->limit;
}

TEST(FastestMesh, NamesWhatLimitsIt) {
  Scenario scenario = on_cards("H100 SXM", gpt2_run(8), 1);
  scenario.zero = 0, scenario.tensor_parallel = 1, scenario.pipeline_parallel = 1;
  EXPECT_TRUE(fastest_mesh(scenario, 16)->limit.starts_with("bytes between machines ("))
      << fastest_mesh(scenario, 16)->limit;
  scenario.network.between = {1e-3, 1e12};
  EXPECT_TRUE(fastest_mesh(scenario, 16)->limit.starts_with("the latency of messages ("))
      << fastest_mesh(scenario, 16)->limit;
  scenario.network = join_cpus({1e-6, 1e9}, 8);
  EXPECT_TRUE(fastest_mesh(scenario, 8)->limit.starts_with("sending, which takes the cores ("))
      << fastest_mesh(scenario, 8)->limit;
}

// Published runs. What they leave open is in the README beside the table.
struct PublishedRun {
  const char* name;
  Scenario scenario;
  Config config;
  double tokens_per_second;  // of each GPU
};

Config llama_8b(int64_t processes) {
  Config config;
  ModelConfig& model = config.model;
  model.n_layer = 32, model.n_head = 32, model.n_kv_head = 8, model.n_embd = 4096, model.n_hidden = 14336;
  model.block_size = 8192, model.vocab_size = 128256, model.dropout = 0, model.tie_weights = false;
  config.training.batch_size = 2, config.training.gradient_accumulation_steps = processes;
  config.training.execution.gradient_checkpointing = GradientCheckpointing::selective;
  config.distributed.processes = processes, config.distributed.zero = 3;
  return config;
}

// GPT with a vocabulary of 51,200 and sequences of 2,048, recomputed whole, and 512 sequences in an update.
Config megatron(int64_t layers, int64_t heads, int64_t width, int64_t processes, int64_t tensor) {
  Config config;
  config.model = gpt2(layers, heads, width);
  config.model.block_size = 2048, config.model.vocab_size = 51200;
  config.training.batch_size = 4, config.training.gradient_accumulation_steps = 512 / 4;
  config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
  config.distributed.processes = processes, config.distributed.tensor_parallel = tensor;
  return config;
}

Config qwen_1_5b(int64_t processes) {
  Config config;
  ModelConfig& model = config.model;
  model.n_layer = 28, model.n_head = 12, model.n_kv_head = 2, model.n_embd = 1536, model.n_hidden = 8960;
  model.block_size = 1024, model.vocab_size = 151936, model.dropout = 0;
  TrainingConfig& training = config.training;
  training.batch_size = 32, training.gradient_accumulation_steps = 2 * processes;
  training.precision.amp_mode = AmpMode::end_to_end, training.precision.dtype = Dtype::bfloat16;
  training.precision.master_weights = false, training.precision.gradient_dtype = GradientDtype::bfloat16;
  training.optimizer.state_dtype = StateDtype::bfloat16;
  config.distributed.processes = processes, config.distributed.zero = processes > 1 ? 1 : 0;
  return config;
}

std::vector<PublishedRun> published_runs() {
  const auto run = [](const char* name, const char* card, double gigabits, const Config& config,
                      double tokens_per_second) {
    return PublishedRun{name, on_cards(card, config, gigabits), config, tokens_per_second};
  };
  return {run("torchtitan, Llama 3.1 8B, FSDP", "H100 SXM", 3200, llama_8b(8), 6667),
          run("torchtitan, Llama 3.1 8B, FSDP", "H100 SXM", 3200, llama_8b(128), 6514),
          run("Megatron-LM, GPT 1.7B", "A100 80GB", 1600, megatron(24, 24, 2304, 32, 1), 9287),
          run("Megatron-LM, GPT 7.5B, tensor parallel 4", "A100 80GB", 1600, megatron(36, 32, 4096, 128, 4), 2216),
          run("LLMQ, Qwen2.5 1.5B", "H100 SXM", 3200, qwen_1_5b(1), 59000),
          run("LLMQ, Qwen2.5 1.5B, ZeRO 1", "H100 SXM", 3200, qwen_1_5b(8), 57100)};
}

// Three digits.
std::string rounded(double value) { return with_commas(static_cast<int64_t>(std::stod(fmt::format("{:.3g}", value)))); }

TEST(PublishedRuns, AreBesideWhatTheModelPredicts) {
  std::ifstream file(GPT_SOURCE_DIR "/src/plan/README.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const PublishedRun& published : published_runs()) {
    const MeshPlan plan = plan_mesh(published.scenario, published.config);
    const double predicted = plan.tokens_per_second() / static_cast<double>(plan.devices());
    const std::string row =
        fmt::format("| {} | {} x {} | {} | {} | {:+.0f} % | {:.0f} % |", published.name, plan.devices(),
                    device::find_card(published.scenario.device.name)->name,
                    with_commas(static_cast<int64_t>(published.tokens_per_second)), rounded(predicted),
                    100 * (predicted / published.tokens_per_second - 1), 100 * plan.time.sending / plan.time.seconds());
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace gpt::plan
