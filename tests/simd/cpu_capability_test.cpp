#include "gpt/simd/cpu_capability.h"

#include <gtest/gtest.h>

namespace gpt::ops::cpu {
namespace {

constexpr double kNone = 0, kSlow = 0.5, kFast = 2;

bool allowed() { return true; }
bool refused() { return false; }
bool not_to_be_asked() {
  ADD_FAILURE() << "ATEN_CPU_CAPABILITY or the processor leaves no use for tiles";
  return true;
}

TEST(CpuCapability, TilesAreUsedWhereTheSystemAllowsThem) {
  EXPECT_EQ(best_capability("AVX512", kSlow, allowed), Capability::AVX512_AMX);
  EXPECT_EQ(best_capability("AVX512", kFast, allowed), Capability::AVX512_AMX);
}

TEST(CpuCapability, WithoutTilesTheFastestVectorsAreUsed) {
  EXPECT_EQ(best_capability("AVX512", kFast, refused), Capability::AVX512_BF16);
  EXPECT_EQ(best_capability("AVX512", kSlow, refused), Capability::AVX512);
  EXPECT_EQ(best_capability("AVX512", kNone, refused), Capability::AVX512);
}

TEST(CpuCapability, WhatLibTorchDoesNotUseIsNotUsedEither) {
  EXPECT_EQ(best_capability("AVX2", kFast, not_to_be_asked), Capability::AVX2);
  EXPECT_EQ(best_capability("DEFAULT", kFast, not_to_be_asked), Capability::DEFAULT);
}

}  // namespace
}  // namespace gpt::ops::cpu
