#include "gpt/device/cpu_bfloat16.h"

#include <gtest/gtest.h>

#include "gpt/device/device.h"
#include "gpt/device/host.h"

namespace gpt::device {
namespace {

TEST(CpuBfloat16, IsFastWhereMatricesOrDotProductsAre) {
  EXPECT_EQ(judge_bfloat16(/*has_instructions=*/false, /*has_matrices=*/false, 0), CpuBfloat16::absent);
  EXPECT_EQ(judge_bfloat16(true, false, 2), CpuBfloat16::fast);     // Zen 5
  EXPECT_EQ(judge_bfloat16(true, false, 0.5), CpuBfloat16::slow);   // Emerald Rapids, AMX hidden by a virtual machine
  EXPECT_EQ(judge_bfloat16(true, false, 1.05), CpuBfloat16::slow);  // as fast as float32
  EXPECT_EQ(judge_bfloat16(true, true, 0.5), CpuBfloat16::fast);    // Emerald Rapids with AMX
  EXPECT_EQ(judge_bfloat16(true, true, 0), CpuBfloat16::fast);      // Arm
}

TEST(CpuBfloat16, TheGainIsMeasuredOnceWhereThereAreDotProducts) {
  const double gain = dot_product_gain();
  EXPECT_EQ(gain, dot_product_gain());
#if defined(__x86_64__)
  EXPECT_EQ(gain > 0, static_cast<bool>(__builtin_cpu_supports("avx512bf16")));
#endif
}

TEST(CpuBfloat16, TheDeviceSaysWhatWasFound) {
  const DeviceInfo info = describe_device(at::kCPU);
  EXPECT_EQ(info.bfloat16, cpu_bfloat16() == CpuBfloat16::fast);
  EXPECT_EQ(info.bfloat16 || info.slow_bfloat16, host::cpu_has_bfloat16());
}

}  // namespace
}  // namespace gpt::device
