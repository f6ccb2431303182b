#include "gpt/bench/step_profile.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/tiny_bench_run.h"
#include "bench/unpadded.h"
#include "core/child_process.h"
#include "gpt/core/process.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "src/bench/part_clock.h"
#include "support/device_cases.h"

namespace gpt::bench {
namespace {

constexpr int kForwardMs = 3, kBackwardMs = 7;

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

struct Sleeper : torch::autograd::Function<Sleeper> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    sleep_ms(kForwardMs);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    sleep_ms(kBackwardMs);
    return gradients;
  }
};

size_t index_of(std::string_view name) {
  return static_cast<size_t>(std::find(ops::part::kAll.begin(), ops::part::kAll.end(), name) - ops::part::kAll.begin());
}

// How long a sleep takes at most is not known; where its time goes is.
TEST(PartClock, GivesTheGradientToThePartThatMadeTheNode) {
  PartClock clock(at::kCPU);
  clock.begin();
  at::Tensor x = at::ones({2}).requires_grad_();
  {
    const ops::InPart part(ops::part::kNorm);
    x = Sleeper::apply(x);
    const ops::InPart inner(ops::part::kProducts);
    x = Sleeper::apply(x);
    x = Sleeper::apply(x);
  }
  x = Sleeper::apply(x);
  x.sum().backward();
  const PartClock::Times times = clock.end();
  const auto& norm = times.parts[index_of(ops::part::kNorm)];
  const auto& products = times.parts[index_of(ops::part::kProducts)];
  const auto& between = times.parts[PartClock::kBetween];
  EXPECT_GE(norm.forward_ms, kForwardMs);
  EXPECT_GE(products.forward_ms, 2 * kForwardMs);
  EXPECT_GE(between.forward_ms, kForwardMs);
  EXPECT_GE(products.backward_ms, 2 * kBackwardMs);
  EXPECT_GE(between.backward_ms, kBackwardMs);
  // The outer part made the nodes of the inner one too, which is the last to claim them.
  EXPECT_GE(norm.backward_ms, kBackwardMs);
  EXPECT_EQ(times.parts[index_of(ops::part::kAttention)].forward_ms, 0);
}

class PartsOfAModel : public DeviceTest {};

TEST_P(PartsOfAModel, AllHaveTimeForwardAndBackward) {
  ModelConfig config;
  config.n_layer = 2, config.n_head = 2, config.n_embd = 32, config.block_size = 16, config.vocab_size = 40;
  config.dropout = 0;
  const at::Tensor ids = at::arange(32, at::TensorOptions(device()).dtype(at::kLong)).view({2, 16});
  for (const auto level : {GradientCheckpointing::none, GradientCheckpointing::norm, GradientCheckpointing::selective,
                           GradientCheckpointing::block}) {
    for (const ops::SharedOperators& operators : {ops::fused_operators(), ops::aten_operators()}) {
      model::GPT model(config, device(), /*seed=*/1);
      model.set_operators(operators);
      model.set_gradient_checkpointing(level);
      PartClock clock(device());
      for (int step = 0; step < 2; ++step) {  // the second has other nodes
        clock.begin();
        model.loss(ids, ids, {}).backward();
        const PartClock::Times times = clock.end();
        for (const char* name : {ops::part::kEmbedding, ops::part::kNorm, ops::part::kProducts, ops::part::kAttention,
                                 ops::part::kActivation}) {
          EXPECT_GT(times.parts[index_of(name)].forward_ms, 0) << name;
          EXPECT_GT(times.parts[index_of(name)].backward_ms, 0) << name;
        }
        EXPECT_GT(times.parts[index_of(ops::part::kHead)].forward_ms, 0);
        EXPECT_EQ(times.parts[index_of(ops::part::kOptimizer)].forward_ms, 0);
      }
    }
  }
}

INSTANTIATE_ON_DEVICES(PartsOfAModel);

// A step of 100 ms on a GPU or on two threads, whose parts take these shares.
StepProfile profile_of(at::Device device, const std::vector<std::pair<std::string_view, double>>& shares) {
  StepProfile profile;
  profile.device.device = device;
  profile.threads = 2, profile.step_ms = profile.mean_ms = 100, profile.cpu_ms = 200, profile.speed = {1e12, 1e9};
  double rest = 100;
  for (const char* name : ops::part::kAll) {
    const auto found =
        std::find_if(shares.begin(), shares.end(), [&](const auto& share) { return share.first == name; });
    const double ms = found == shares.end() ? 0 : 100 * found->second;
    profile.parts.push_back({.name = name, .ms = ms});
    rest -= ms;
  }
  profile.parts.push_back({.name = "between the operators", .ms = rest});
  return profile;
}

bool mentions(const std::vector<std::string>& sentences, const std::string& text) {
  return std::any_of(sentences.begin(), sentences.end(),
                     [&](const std::string& sentence) { return sentence.find(text) != std::string::npos; });
}

TEST(StepAdvice, IsAboutWhatTakesTheTime) {
  const StepProfile balanced = profile_of(at::kCPU, {{ops::part::kProducts, 0.7}, {ops::part::kAttention, 0.2}});
  EXPECT_EQ(advice(balanced),
            (std::vector<std::string>{"Nothing stands out: products, attention and head take 90 % of a step."}));

  StepProfile slow = balanced;
  slow.config.training.execution.use_compile = false;
  slow.config.training.execution.attention = AttentionKernel::math;
  EXPECT_TRUE(advice(slow)[0].starts_with("`training.use_compile: true`"));
  EXPECT_TRUE(mentions(advice(slow), "`training.attention: auto`"));

  StepProfile idle = balanced;
  idle.cpu_ms = 110;
  EXPECT_TRUE(mentions(advice(idle), "Threads were busy for only 55 % of the time"));
  EXPECT_TRUE(mentions(advice(idle), "`--threads 1`"));

  StepProfile update = profile_of(at::kCPU, {{ops::part::kProducts, 0.6}, {ops::part::kOptimizer, 0.4}});
  EXPECT_TRUE(mentions(advice(update), "The update takes 40 % of a step"));
  update.config.training.optimizer.fused_adamw = false;
  EXPECT_TRUE(mentions(advice(update), "`training.fused_adamw: true`"));

  StepProfile capable = balanced;
  capable.device.bfloat16 = true;
  EXPECT_TRUE(mentions(advice(capable), "`training.use_amp: true`"));
  capable.type = at::kBFloat16;
  EXPECT_FALSE(mentions(advice(capable), "`training.use_amp: true`"));
}

TEST(StepAdvice, OnAGpuTheHostMayBeTheSlowPart) {
  StepProfile profile = profile_of(at::Device(at::kCUDA, 0), {{ops::part::kProducts, 0.5}, {ops::part::kData, 0.1}});
  profile.launched_ms = 97;
  profile.config.training.execution.compile_mode = CompileMode::standard;
  EXPECT_TRUE(mentions(advice(profile), "`training.compile_mode: auto`"));
  EXPECT_TRUE(mentions(advice(profile), "`data.resident: on`"));
  profile.config.training.execution.compile_mode = CompileMode::reduce_overhead;
  EXPECT_FALSE(mentions(advice(profile), "compile_mode")) << "a run of this configuration records its steps already";
  EXPECT_NE(to_markdown(findings(profile).text).find("once in a run of this configuration"), std::string::npos);
  profile.config.training.execution.compile_mode = CompileMode::standard;
  profile.launched_ms = 20;
  EXPECT_FALSE(mentions(advice(profile), "compile_mode"));
}

// Half the steps take 100 ms; among the others are some in which another program had the processor.
TEST(StepProfiles, SayWhereSomethingElseTookTheTime) {
  StepProfile profile = profile_of(at::kCPU, {{ops::part::kProducts, 0.9}});
  const auto text = [&profile] { return to_markdown(findings(profile).text); };
  EXPECT_NE(text().find("2.00 of 2 threads were busy"), std::string::npos) << text();
  EXPECT_EQ(text().find("another program"), std::string::npos) << text();
  profile.mean_ms = 125;
  EXPECT_NE(text().find("The mean of the steps is 125.00 ms, 25 % more than their median"), std::string::npos)
      << text();
  EXPECT_NE(text().find("1.60 of 2 threads were busy"), std::string::npos) << "of the same steps as the time";
}

// In a child process, which has one thread when it begins to watch for signals. Its exit status is the number of steps.
ChildResult profile_until_a_signal_in_step(int step) {
  const ScratchFolder folder;
  return run_child([&] {
    at::set_num_threads(1);  // a forked child has none of the threads that its parent may have started
    process::watch_signals();
    int begun = 0;
    const Progress interrupt = [&](double, const std::string& what) {
      if (what != "steps" || ++begun != step) return;
      kill(getpid(), SIGINT);
      while (process::stop_signal() == 0) usleep(100);
    };
    const StepProfile profile = profile_steps(tiny_bench_run(folder), /*seconds=*/1e6, interrupt);
    return profile.complete ? -1 : static_cast<int>(profile.updates);
  });
}

TEST(StepProfiles, ASignalKeepsFiveStepsOrMore) {
  const ChildResult enough = profile_until_a_signal_in_step(8);
  EXPECT_EQ(enough.status, 7) << enough.errors;
  EXPECT_EQ(profile_until_a_signal_in_step(6).status, 5);
  const ChildResult too_few = profile_until_a_signal_in_step(5);
  EXPECT_EQ(too_few.status, 99);
  EXPECT_NE(too_few.errors.find("interrupted"), std::string::npos) << too_few.errors;
}

TEST(StepProfiles, ShowEveryPart) {
  const Findings result = findings(profile_of(at::kCPU, {{ops::part::kProducts, 0.7}}));
  const std::string text = to_markdown(result.text);
  for (const char* name : ops::part::kAll) {
    EXPECT_NE(text.find(std::string("| ") + name + " "), std::string::npos) << name;
    EXPECT_NE(result.json.find(std::string("\"") + name + "\""), std::string::npos) << name;
  }
  EXPECT_TRUE(result.complete);
}

// A product of 35 ms at least, and a norm that moves for 10 ms.
TEST(StepProfiles, SayHowCloseEachPartIsToWhatTheMachineCanDo) {
  StepProfile profile = profile_of(at::kCPU, {{ops::part::kProducts, 0.7}, {ops::part::kNorm, 0.2}});
  profile.parts[index_of(ops::part::kProducts)].work = {.flops = 35e9, .bytes = 1e6};
  profile.parts[index_of(ops::part::kNorm)].work = {.flops = 0, .bytes = 1e7};
  const Findings result = findings(profile);
  const std::string text = unpadded(result.text);
  for (const char* row :
       {"| residual sum and norm | 20.00 | 0.00 | 20 % | 10.00 | 50 % |",
        "| products | 70.00 | 0.00 | 70 % | 35.00 | 50 % |", "| between the operators | 10.00 | 0.00 | 10 % | - | - |",
        "| step | 100.00 | 0.00 | 100 % | 45.00 | 45 % |"})
    EXPECT_NE(text.find(row), std::string::npos) << row << "\n" << text;
  const auto json = nlohmann::json::parse(result.json);
  EXPECT_EQ(json["least_ms"], 45);
  EXPECT_EQ(json["copy_bytes_per_second"], 1e9);
  EXPECT_EQ(json["parts"][index_of(ops::part::kNorm)]["bytes"], 1e7);
}

}  // namespace
}  // namespace gpt::bench
