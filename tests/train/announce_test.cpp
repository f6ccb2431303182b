// What the first lines of a run say.
#include "gpt/train/announce.h"

#include <gtest/gtest.h>

#include <string>

#include "gpt/config/output_folder.h"

namespace gpt {
namespace {

// The lines of settings that were written out as `origins` says, on a CPU with resident tokens.
std::string idle(const Config& config, const config::Origins& origins) {
  testing::internal::CaptureStderr();
  announce_idle_settings(config, origins, {.device = at::kCPU}, Precision{}, /*resident=*/true);
  return testing::internal::GetCapturedStderr();
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
  config.model.position = Position::learned;
  EXPECT_EQ(idle(config, {{"model.rope_theta", "--rope_theta"}}),
            "No effect here: model.rope_theta (model.position is learned)\n");
  EXPECT_EQ(idle(config, {{"training.sample_tokens", "c.yaml:2:3"}, {"training.sample_prompt", "c.yaml:3:3"}}),
            "No effect here: training.sample_tokens, training.sample_prompt (training.sample_interval is 0)\n");
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
    testing::internal::CaptureStderr();
    announce_device({.device = at::kCPU}, {at::kCPU, "no CUDA device found", is_wished});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(lines(true).find("training on the CPU, although use_gpu is true: no CUDA device found"), std::string::npos);
  EXPECT_EQ(lines(false).find("although"), std::string::npos);
}

}  // namespace
}  // namespace gpt
