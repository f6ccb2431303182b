#include "gpt/diagnose/speed_check.h"

#include <gtest/gtest.h>

#include "gpt/layout/parameter_table.h"
#include "gpt/plan/time_checks.h"

namespace gpt::diagnose {
namespace {

using Status = plan::Check::Status;

// A step that reaches `share` of the speed of products, on a CPU without bfloat16 and without other programs.
struct SomeRun {
  Config config;
  device::DeviceInfo device;
  device::Precision precision;
  SpeedFacts facts{.step_seconds = 1, .product_speed = 1, .peak = {}, .attention = "flash", .threads = 8, .cores = 8};

  SomeRun() { config.model.vocab_size = 50257; }
  plan::Check check(double share) {
    facts.product_speed =
        layout::flops_per_token(config.model) * static_cast<double>(plan::tokens_per_step(config)) / share;
    return check_speed(config, device, precision, facts);
  }
};

TEST(CheckSpeed, IsJudgedByTheShareOfProducts) {
  SomeRun run;
  EXPECT_TRUE(run.check(0.7).detail.ends_with("FLOP/s, 70 % of what matrix products reach here: good"));
  EXPECT_TRUE(run.check(0.4).detail.ends_with("40 % of what matrix products reach here: usual"));
  EXPECT_EQ(run.check(0.4).status, Status::pass);
  EXPECT_EQ(run.check(0.1).status, Status::warn);
  run.facts.peak = run.facts.product_speed * 2;
  run.facts.step_seconds = 0.1;
  EXPECT_NE(check_speed(run.config, run.device, run.precision, run.facts).detail.find("and 50 % of the card's peak"),
            std::string::npos);
}

TEST(CheckSpeed, ASlowStepNamesItsLikelyCause) {
  const auto cause = [](const auto& change) {
    SomeRun run;
    change(run);
    return run.check(0.1);
  };
  EXPECT_NE(cause([](SomeRun&) {}).fix.find("gpt-bench profile"), std::string::npos);
  EXPECT_NE(cause([](SomeRun& run) { run.facts.load = 6; }).detail.find("since other programs take 6.0 of the 8 cores"),
            std::string::npos);
  EXPECT_EQ(cause([](SomeRun& run) { run.facts.threads = 2, run.facts.is_told_threads = true; }).fix, "set threads: 0");
  EXPECT_NE(cause([](SomeRun& run) { run.facts.threads = 4; }).fix, "set threads: 0") << "LibTorch's own choice";
  EXPECT_EQ(cause([](SomeRun& run) { run.precision.dtype = Dtype::bfloat16; }).fix, "set training.dtype: auto");
  EXPECT_EQ(cause([](SomeRun& run) { run.facts.attention = "math: asked for"; }).fix, "set training.attention: auto");
  EXPECT_EQ(cause([](SomeRun& run) { run.config.training.execution.use_compile = false; }).fix,
            "set training.use_compile: true");
  EXPECT_NE(cause([](SomeRun& run) { run.config.training.batch_size = 1; }).fix.find("raise training.batch_size"),
            std::string::npos);
  EXPECT_EQ(cause([](SomeRun& run) {
              run.device.device = at::Device(at::kCUDA, 0);
              run.facts.threads = 1;
              run.config.training.execution.compile_mode = CompileMode::standard;
            }).fix,
            "set training.compile_mode: auto");
}

TEST(CheckSpeed, WhatLiesInTheModelIsNoWarning) {
  SomeRun run;
  run.config.model.n_embd = 64;
  const plan::Check narrow = run.check(0.1);
  EXPECT_EQ(narrow.status, Status::pass);
  EXPECT_NE(narrow.detail.find("slow, since products of width 64"), std::string::npos) << narrow.detail;
}

}  // namespace
}  // namespace gpt::diagnose
