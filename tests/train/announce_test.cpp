// What the first lines of a run say, on devices that are not here too.
#include "gpt/train/announce.h"

#include <gtest/gtest.h>

#include <string>

#include "gpt/config/run_files.h"
#include "gpt/device/cards.h"
#include "support/captured_log.h"

namespace gpt::train {
namespace {

std::string said(const auto& announce) {
  test::CapturedLog log;
  announce();
  return log.text();
}

// The lines of settings that were written out as `origins` says, on a CPU with resident tokens.
std::string idle(const Config& config, const config::Origins& origins) {
  const run::Setup setup{config, data::Corpus(), device::describe_device(at::kCPU), device::Precision{}};
  return said([&] { announce_idle_settings(setup, /*resident=*/true, origins); });
}

TEST(AnnounceIdleSettings, NamesThemWithTheReason) {
  Config config;
  EXPECT_EQ(idle(config, {}), "");
  config.training.execution.use_compile = false;
  EXPECT_EQ(idle(config, {{"training.loss_chunk_rows", "--loss_chunk_rows"}}),
            "No effect here: training.loss_chunk_rows (training.use_compile is false)\n");
  config.training.schedule.lr_schedule = LrSchedule::constant;
  EXPECT_EQ(idle(config, {{"training.min_lr", "c.yaml:2:3"}}),
            "No effect here: training.min_lr (training.lr_schedule is constant)\n");
  const config::Origins of_others{{"training.decay_fraction", "c.yaml:2:3"},
                                  {"training.decay_shape", "c.yaml:3:3"},
                                  {"training.plateau_factor", "c.yaml:4:3"},
                                  {"training.plateau_cooldown", "c.yaml:5:3"}};
  EXPECT_EQ(
      idle(config, of_others),
      "No effect here: training.decay_fraction, training.decay_shape (training.lr_schedule is not wsd)\n"
      "No effect here: training.plateau_factor, training.plateau_cooldown (training.lr_schedule is not plateau)\n");
  config.training.schedule.lr_schedule = LrSchedule::wsd;
  EXPECT_EQ(idle(config, {{"training.min_lr", "c.yaml:2:3"}, {"training.decay_fraction", "c.yaml:3:3"}}), "");
  config.model.position = Position::learned;
  EXPECT_EQ(idle(config, {{"model.rope_theta", "--rope_theta"}}),
            "No effect here: model.rope_theta (model.position is learned)\n");
  EXPECT_EQ(idle(config, {{"model.window_pattern", "c.yaml:2:3"},
                          {"model.attention_block", "c.yaml:3:3"},
                          {"model.attention_top_blocks", "c.yaml:4:3"}}),
            "No effect here: model.window_pattern (model.attention_window is 0)\n"
            "No effect here: model.attention_block, model.attention_top_blocks (model.attention is full)\n");
  EXPECT_EQ(idle(config, {{"training.sample_tokens", "c.yaml:2:3"}, {"training.sample_prompt", "c.yaml:3:3"}}),
            "No effect here: training.sample_tokens, training.sample_prompt (training.sample_interval is 0)\n");
}

TEST(AnnounceIdleSettings, KeysOfWhatDoesNotHappenAreNamed) {
  Config config;
  EXPECT_EQ(idle(config, {{"distributed.timeout", "--timeout"}}),
            "No effect here: distributed.timeout (there is one process)\n");
  EXPECT_EQ(idle(config, {{"training.eval_interval", "--eval_interval"}}),
            "No effect here: training.eval_interval (the data has no validation split)\n");
  EXPECT_EQ(idle(config, {{"training.eval_task_limit", "--eval_task_limit"}}),
            "No effect here: training.eval_task_limit (training.eval_tasks names no task)\n");
  config.training.cadence.checkpoint_interval.count = 0;
  EXPECT_EQ(idle(config, {{"training.keep_last", "--keep_last"}}),
            "No effect here: training.keep_last (training.checkpoint_interval is 0)\n");
}

TEST(AnnounceIdleSettings, KeysThatHaveAnEffectAreNotNamed) {
  Config config;
  config.training.cadence.sample_interval = {5, Interval::Unit::steps};
  EXPECT_EQ(idle(config, {{"training.loss_chunk_rows", "-"},
                          {"training.min_lr", "-"},
                          {"model.rope_theta", "-"},
                          {"training.sample_tokens", "-"},
                          {"training.sample_prompt", "-"}}),
            "");
}

TEST(AnnounceIdleSettings, WhatARunWroteOutItselfIsNobodysMistake) {
  Config config;
  EXPECT_EQ(idle(config, {{"training.sample_tokens", std::string("models/a/") + kEffectiveConfig + ":2:3"}}), "");
}

TEST(AnnounceDevice, SaysThatThereIsNoGpuWhereOneWasWishedFor) {
  const auto lines = [](bool is_wished) {
    const device::DeviceChoice choice{at::kCPU, "no CUDA device found", is_wished};
    return said([&] { announce_device(device::describe_device(at::kCPU), choice, /*has_gpu=*/false); });
  };
  EXPECT_NE(lines(true).find("training on the CPU, although use_gpu is true: no CUDA device found"), std::string::npos);
  EXPECT_EQ(lines(false).find("although"), std::string::npos);
}

std::string methods(const Config& config, const device::Precision& precision, const device::DeviceInfo& device) {
  return said([&] { announce_methods({config, data::Corpus(), device, precision}); });
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(AnnounceDevice, NamesAGpuWithItsMemory) {
  const device::DeviceInfo gpu = device::describe_gpu(at::Device(at::kCUDA, 0), "NVIDIA H200", 150'754'820'096, 9, 0);
  EXPECT_EQ(said([&] { announce_device(gpu, {gpu.device, ""}, true); }),
            "✓ Using GPU: NVIDIA H200, 150.8 GB (compute capability 9.0)\n");
}

TEST(AnnounceDevice, SaysWhyItIsACpuWhereThereIsAGpu) {
  device::DeviceInfo cpu = device::describe_device(at::kCPU);
  cpu.name = "a CPU", cpu.memory_bytes = 2'000'000'000;
  const device::DeviceChoice choice{at::kCPU, "the driver is too old"};
  const auto announced = [&](const device::DeviceChoice& chosen, bool has_gpu) {
    return said([&] { announce_device(cpu, chosen, has_gpu); });
  };
  EXPECT_TRUE(
      announced(choice, true).starts_with("warning: training on the CPU: the driver is too old\nUsing CPU: a CPU, "));
  EXPECT_TRUE(announced(choice, false).starts_with("Using CPU: a CPU, ")) << "nothing to explain";
  EXPECT_TRUE(announced({at::kCPU, ""}, true).starts_with("Using CPU: a CPU, ")) << "it was asked for";
  EXPECT_TRUE(announced(choice, true).ends_with(", 2.0 GB\n"));
}

TEST(AnnounceMethods, HaveALineForEach) {
  const device::DeviceInfo cpu = device::describe_device(at::kCPU);
  Config config;
  config.model.vocab_size = 65;
  const std::string plain = methods(config, {.reason = "float32 it is"}, cpu);
  EXPECT_TRUE(plain.starts_with("Precision: float32 it is\n✓ Using fused AdamW\n")) << plain;
  EXPECT_TRUE(has_line(plain, "✓ Flash attention")) << plain;
  for (const char* other : {"TF32", "GradScaler", "offload", "checkpointing"})
    EXPECT_EQ(plain.find(other), std::string::npos) << other;

  EXPECT_TRUE(has_line(methods(config, {.dtype = Dtype::tf32, .tf32 = true, .reason = ""}, cpu), "✓ Enabled TF32"));
  EXPECT_TRUE(has_line(methods(config, {.dtype = Dtype::float16, .grad_scaler = true, .reason = ""}, cpu),
                       "✓ GradScaler on the device"));

  config.training.execution.attention = AttentionKernel::math;
  config.training.execution.use_compile = false;
  config.training.execution.gradient_checkpointing = GradientCheckpointing::block;
  const std::string other = methods(config, {}, cpu);
  EXPECT_EQ(other.find("Flash"), std::string::npos) << other;
  EXPECT_NE(other.find("\nAttention without the flash path: "), std::string::npos) << other;
  EXPECT_TRUE(has_line(other, "✓ Gradient checkpointing: the backward pass computes each block again")) << other;
}

TEST(AnnounceMethods, SayHowMuchOfTheStateIsOffloaded) {
  Config config;
  config.model.n_layer = 1, config.model.n_head = 1, config.model.n_embd = 64, config.model.vocab_size = 64;
  const auto line = [&](double share) {
    config.training.optimizer.offload = share;
    const std::string text = methods(config, {}, device::describe_device(at::kCPU));
    const size_t begin = text.find("✓ Optimizer offload: ");
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(line(0), "");
  const std::string all = line(1);
  const std::string part = " is in the memory of the host";
  ASSERT_TRUE(all.ends_with(" of the optimizer's state" + part)) << all;
  const std::string bytes = all.substr(std::string("✓ Optimizer offload: ").size());
  EXPECT_EQ(bytes.substr(0, bytes.find(" of ")), bytes.substr(bytes.find(" of ") + 4, bytes.find(" of ")));
}

}  // namespace
}  // namespace gpt::train
