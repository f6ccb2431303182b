#include "gpt/ops/probe.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace gpt::ops {
namespace {

TEST(Probe, ProductsWorkOnTheCpu) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Probe probe = probe_product(at::kCPU, type);
    EXPECT_TRUE(probe.works) << type << ": " << probe.reason;
  }
}

TEST(Probe, FlashAttentionWorksOnTheCpu) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Probe probe = probe_attention(at::kCPU, SdpBackends{.flash = true}, type);
    EXPECT_TRUE(probe.works) << type << ": " << probe.reason;
  }
}

TEST(Probe, OurAttentionWorksOnTheCpu) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Probe probe = probe_cpu_attention(type);
    EXPECT_TRUE(probe.works) << type << ": " << probe.reason;
  }
}

// The CPU has no such kernel: the probe has to find that out, not fall back to another one.
TEST(Probe, AMissingKernelIsReportedWithItsReason) {
  const Probe probe = probe_attention(at::kCPU, SdpBackends{.cudnn = true}, at::kBFloat16);
  EXPECT_FALSE(probe.works);
  EXPECT_NE(probe.reason, "");
}

TEST(Probe, AMissingDeviceIsAReasonNotAnException) {
  if (at::globalContext().hasCUDA()) GTEST_SKIP() << "a GPU is there";
  const Probe probe = probe_product(at::Device(at::kCUDA, 0), at::kFloat);
  EXPECT_FALSE(probe.works);
  EXPECT_NE(probe.reason, "");
}

TEST(Probe, Tf32IsNotClaimedWhereProductsKeepTheirBits) { EXPECT_FALSE(probe_tf32(at::kCPU).works); }

TEST(Probe, LeavesTheProcessAsItWas) {
  auto& context = at::globalContext();
  context.setSDPUseMemEfficient(false);
  const auto precision = [&] { return context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL); };
  const auto before = precision();
  probe_attention(at::kCPU, SdpBackends{.flash = true}, at::kFloat);
  probe_tf32(at::kCPU);
  EXPECT_TRUE(context.userEnabledFlashSDP());
  EXPECT_FALSE(context.userEnabledMemEfficientSDP());
  EXPECT_TRUE(context.userEnabledMathSDP());
  EXPECT_EQ(precision(), before);
  context.setSDPUseMemEfficient(true);
}

}  // namespace
}  // namespace gpt::ops
