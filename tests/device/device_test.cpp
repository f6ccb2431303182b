#include "gpt/device/device.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "gpt/core/error.h"
#include "gpt/device/memory.h"

namespace gpt::device {
namespace {

DeviceInfo card(const std::string& name) {
  DeviceInfo info;
  info.device = at::Device(at::kCUDA, 0);
  info.name = name;
  return info;
}

double tflops(const std::string& name, Dtype dtype) { return card(name).peak_flops(dtype).value_or(0) / 1e12; }

TEST(SelectDevice, CpuIsTakenWithoutAReason) {
  const DeviceChoice choice = select_device("cpu");
  EXPECT_TRUE(choice.device.is_cpu());
  EXPECT_EQ(choice.reason, "");
}

TEST(SelectDevice, AutoEitherHasAGpuOrSaysWhyNot) {
  const DeviceChoice choice = select_device("auto");
  EXPECT_EQ(choice.device.is_cpu(), !choice.reason.empty()) << choice.reason;
}

TEST(SelectDevice, NonsenseIsAConfigError) {
  for (const char* spec : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "CUDA", "cuda1", "cuda:99999999999"}) {
    try {
      select_device(spec);
      FAIL() << spec;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::config);
      EXPECT_EQ(std::string(e.what()),
                "device '" + std::string(spec) + "' is not a device: use auto, cpu, cuda or cuda:N");
    }
  }
}

TEST(SelectDevice, AnExplicitDeviceThatIsNotThereIsAConfigError) {
  try {
    select_device("cuda:900");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::config);
    EXPECT_EQ(std::string(e.what()).find("device 'cuda:900' is not available: "), 0u) << e.what();
  }
}

TEST(DescribeDevice, KnowsTheCpu) {
  const DeviceInfo info = describe_device(at::kCPU);
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.float16);
  EXPECT_FALSE(info.tf32);
  const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_LE(info.memory_bytes, physical);
  EXPECT_EQ(info.peak_flops(Dtype::float32), std::nullopt);
}

TEST(PeakFlops, FindsACardByItsFullName) {
  EXPECT_DOUBLE_EQ(tflops("NVIDIA H100 80GB HBM3", Dtype::bfloat16), 989.4);
  EXPECT_DOUBLE_EQ(tflops("NVIDIA H100 PCIe", Dtype::bfloat16), 756);
  EXPECT_DOUBLE_EQ(tflops("NVIDIA H200", Dtype::tf32), 494.7);
  EXPECT_DOUBLE_EQ(tflops("NVIDIA A100-SXM4-80GB", Dtype::bfloat16), 312);
  EXPECT_DOUBLE_EQ(tflops("NVIDIA A10", Dtype::bfloat16), 125);
  EXPECT_DOUBLE_EQ(tflops("NVIDIA L40S", Dtype::bfloat16), 362);
  EXPECT_DOUBLE_EQ(tflops("NVIDIA L4", Dtype::bfloat16), 121);
  EXPECT_DOUBLE_EQ(tflops("Tesla T4", Dtype::float16), 65);
  EXPECT_DOUBLE_EQ(tflops("NVIDIA GeForce RTX 4090", Dtype::bfloat16), 165.2);
}

TEST(PeakFlops, IsUnknownRatherThanWrong) {
  for (const char* name : {"NVIDIA A10G", "NVIDIA GeForce RTX 4090 Laptop GPU", "Quadro RTX 6000",
                           "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA Something", ""}) {
    EXPECT_EQ(card(name).peak_flops(Dtype::bfloat16), std::nullopt) << name;
  }
  EXPECT_EQ(card("Tesla T4").peak_flops(Dtype::bfloat16), std::nullopt);
  EXPECT_EQ(card("NVIDIA H200").peak_flops(Dtype::automatic), std::nullopt);
}

TEST(Memory, AllocationIsSeenOnTheCpu) {
  constexpr int64_t kBytes = 64 << 20;
  release_unused_memory(at::kCPU);  // what other tests left, where one process runs them all
  const int64_t before = allocated_bytes(at::kCPU);
  const at::Tensor tensor = at::ones({kBytes}, at::kByte);
  const int64_t grown = allocated_bytes(at::kCPU) - before;
  EXPECT_GE(grown, kBytes * 9 / 10);
  EXPECT_LE(grown, kBytes * 2);
  EXPECT_GE(peak_allocated_bytes(at::kCPU), allocated_bytes(at::kCPU));
  EXPECT_GT(free_bytes(at::kCPU), 0);
  EXPECT_LT(free_bytes(at::kCPU), describe_device(at::kCPU).memory_bytes);
  synchronize(at::kCPU);
}

// scripts/measure_gpu.sh finds the tests of a GPU by the name of its device.
TEST(DeviceCases, EveryTestOfADeviceHasItsName) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
    for (int i = 0; i < all.GetTestSuite(suite)->total_test_count(); ++i) {
      const testing::TestInfo& test = *all.GetTestSuite(suite)->GetTestInfo(i);
      const std::string parameter = test.value_param() ? test.value_param() : "";
      if (parameter.find("cuda") == std::string::npos) continue;
      EXPECT_NE(std::string(test.name()).find("cuda"), std::string::npos)
          << test.test_suite_name() << "." << test.name();
    }
  }
}

}  // namespace
}  // namespace gpt::device
