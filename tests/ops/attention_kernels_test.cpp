#include "gpt/ops/attention_kernels.h"

#include <gtest/gtest.h>

namespace gpt::ops {
namespace {

TEST(AttentionKernels, AreAllowedWithinAScope) {
  const AttentionKernels before = allowed_attention_kernels();
  {
    const OnlyAttentionKernels only({.cudnn = true});
    EXPECT_EQ(allowed_attention_kernels(), (AttentionKernels{.cudnn = true}));
    {
      const OnlyAttentionKernels others({.flash = true, .math = true});
      EXPECT_EQ(allowed_attention_kernels(), (AttentionKernels{.flash = true, .math = true}));
    }
    EXPECT_EQ(allowed_attention_kernels(), (AttentionKernels{.cudnn = true}));
  }
  EXPECT_EQ(allowed_attention_kernels(), before);
}

TEST(AttentionKernels, WithoutCudnnTheOthersAreWhatTheyWere) {
  {
    const OnlyAttentionKernels all({.cudnn = true, .flash = true, .efficient = true, .math = true});
    EXPECT_EQ(without_cudnn(), (AttentionKernels{.flash = true, .efficient = true, .math = true}));
  }
  {
    const OnlyAttentionKernels one({.math = true});
    EXPECT_EQ(without_cudnn(), (AttentionKernels{.math = true}));
  }
  const OnlyAttentionKernels cudnn({.cudnn = true});
  EXPECT_EQ(without_cudnn(), (AttentionKernels{.flash = true, .efficient = true, .math = true}));
}

TEST(AttentionKernels, CudnnIsLeftOutWhereItWouldRoundTheDropout) {
  const OnlyAttentionKernels all({.cudnn = true, .flash = true, .efficient = true, .math = true});
  for (const double known : {0.0, 0.0625, 0.125, 0.5}) EXPECT_TRUE(exact_for_dropout(known).cudnn) << known;
  for (const double rounded : {0.1, 0.2, 0.3, 1.0 / 3}) {
    EXPECT_EQ(exact_for_dropout(rounded), (AttentionKernels{.flash = true, .efficient = true, .math = true}))
        << rounded;
  }
}

}  // namespace
}  // namespace gpt::ops
