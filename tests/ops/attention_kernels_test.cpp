#include "gpt/ops/attention_kernels.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <array>

namespace gpt::ops {
namespace {

using Allowed = std::array<bool, 4>;

Allowed allowed() {
  const auto& context = at::globalContext();
  return {context.userEnabledCuDNNSDP(), context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(),
          context.userEnabledMathSDP()};
}

TEST(AttentionKernels, AreAllowedWithinAScope) {
  const Allowed before = allowed();
  {
    const OnlyAttentionKernels only({at::SDPBackend::cudnn_attention});
    EXPECT_EQ(allowed(), (Allowed{true, false, false, false}));
    {
      const AttentionWithoutCudnn others;  // cuDNN alone would leave nothing
      EXPECT_EQ(allowed(), (Allowed{false, true, true, true}));
    }
    EXPECT_EQ(allowed(), (Allowed{true, false, false, false}));
  }
  EXPECT_EQ(allowed(), before);
}

}  // namespace
}  // namespace gpt::ops
