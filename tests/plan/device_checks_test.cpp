#include "gpt/plan/device_checks.h"

#include <gtest/gtest.h>

namespace gpt::plan {
namespace {

using Status = Check::Status;

device::DeviceInfo cpu() { return {.device = at::kCPU, .name = "some CPU", .memory_bytes = 16'000'000'000}; }

device::DeviceInfo hopper() {
  return {.device = at::Device(at::kCUDA, 0),
          .name = "NVIDIA H200",
          .memory_bytes = 143'000'000'000,
          .compute_major = 9,
          .compute_minor = 0,
          .bfloat16 = true,
          .float16 = true,
          .tf32 = true};
}

device::DeviceInfo turing() {
  return {.device = at::Device(at::kCUDA, 0),
          .name = "Tesla T4",
          .memory_bytes = 16'000'000'000,
          .compute_major = 7,
          .compute_minor = 5,
          .bfloat16 = false,
          .float16 = true,
          .tf32 = false};
}

PrecisionConfig precision(bool use_amp, Dtype dtype) {
  PrecisionConfig config;
  config.use_amp = use_amp;
  config.dtype = dtype;
  return config;
}

TEST(CheckDevice, AGpuThatIsNotUsedIsAWarning) {
  const Check check = check_device("cpu", cpu(), hopper(), true);
  EXPECT_EQ(check.status, Status::warn);
  EXPECT_NE(check.detail.find("NVIDIA H200"), std::string::npos);
  EXPECT_EQ(check.fix, "set device: auto");
  EXPECT_EQ(check_device("auto", cpu(), cpu(), /*gpu_present=*/true).status, Status::warn);
}

TEST(CheckDevice, TheBestThereIsPasses) {
  EXPECT_EQ(check_device("auto", hopper(), hopper(), true).status, Status::pass);
  EXPECT_EQ(check_device("auto", cpu(), cpu(), false).status, Status::pass);
}

TEST(CheckPrecision, FullFloat32OnATensorCoreCardIsAWarning) {
  EXPECT_EQ(check_precision(precision(true, Dtype::float32), hopper()).status, Status::warn);
  EXPECT_EQ(check_precision(precision(false, Dtype::automatic), hopper()).status, Status::warn);
  EXPECT_EQ(check_precision(precision(false, Dtype::automatic), turing()).status, Status::warn);
}

TEST(CheckPrecision, Float16WhereBfloat16IsThereIsAWarning) {
  EXPECT_EQ(check_precision(precision(true, Dtype::float16), hopper()).status, Status::warn);
  EXPECT_EQ(check_precision(precision(true, Dtype::float16), turing()).status, Status::pass);
}

TEST(CheckPrecision, AutomaticPassesEverywhere) {
  for (const device::DeviceInfo& device : {cpu(), hopper(), turing()}) {
    EXPECT_EQ(check_precision(precision(true, Dtype::automatic), device).status, Status::pass) << device.name;
  }
  EXPECT_EQ(check_precision(precision(false, Dtype::automatic), cpu()).status, Status::pass);
}

TEST(CheckPrecision, WhatTheDeviceCannotDoFails) {
  EXPECT_EQ(check_precision(precision(true, Dtype::float16), cpu()).status, Status::fail);
  EXPECT_EQ(check_precision(precision(true, Dtype::bfloat16), turing()).status, Status::fail);
}

TEST(CheckThreads, MoreThanCoresIsAWarning) {
  EXPECT_EQ(check_threads(0, 8).status, Status::pass);
  EXPECT_EQ(check_threads(8, 8).status, Status::pass);
  EXPECT_EQ(check_threads(9, 8).status, Status::warn);
}

TEST(CheckThreads, SeveralProcessesShareTheCores) {
  EXPECT_EQ(check_threads(0, 8, 3).detail, "2 in each of 3 processes on 8 cores");
  EXPECT_EQ(check_threads(4, 8, 2).status, Status::pass);
  EXPECT_EQ(check_threads(4, 8, 3).fix, "set threads: 0");
  const Check many = check_threads(0, 2, 3);
  EXPECT_EQ(many.detail, "1 thread in each of 3 processes on 2 cores wait for each other");
  EXPECT_EQ(many.fix, "set distributed.processes: 2 or less");
}

TEST(CheckNuma, EachProcessIsToHaveANode) {
  EXPECT_EQ(check_numa(2, 2).status, Status::pass);
  EXPECT_EQ(check_numa(2, 4).status, Status::pass);
  const Check one = check_numa(4, 1);
  EXPECT_EQ(one.status, Status::warn);
  EXPECT_NE(one.detail.find("the run computes"), std::string::npos) << one.detail;
  EXPECT_EQ(one.fix, "set distributed.processes: 4");
  EXPECT_EQ(check_numa(4, 2).fix, "set distributed.processes: 4");
  EXPECT_EQ(check_numa(2, 5).fix, "set distributed.processes: 4");
}

}  // namespace
}  // namespace gpt::plan
