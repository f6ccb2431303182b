#include "support/poisoned_memory.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace gpt::device {
namespace {

TEST(PoisonedMemory, IsWhatNewTensorsHoldWithinItsScope) {
  {
    const test::PoisonedMemory poisoned;
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
      EXPECT_TRUE(at::empty({1000}, type).isnan().all().item<bool>()) << type;
  }
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

}  // namespace
}  // namespace gpt::device
