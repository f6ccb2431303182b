#include "gpt/ops/sdp_backends.h"

#include <gtest/gtest.h>

namespace gpt::ops {
namespace {

TEST(SdpBackends, AreAllowedWithinAScope) {
  const SdpBackends before = allowed_sdp_backends();
  {
    const OnlySdpBackends only({.cudnn = true});
    EXPECT_EQ(allowed_sdp_backends(), (SdpBackends{.cudnn = true}));
    {
      const OnlySdpBackends others({.flash = true, .math = true});
      EXPECT_EQ(allowed_sdp_backends(), (SdpBackends{.flash = true, .math = true}));
    }
    EXPECT_EQ(allowed_sdp_backends(), (SdpBackends{.cudnn = true}));
  }
  EXPECT_EQ(allowed_sdp_backends(), before);
}

TEST(SdpBackends, WithoutCudnnTheOthersAreWhatTheyWere) {
  {
    const OnlySdpBackends all({.cudnn = true, .flash = true, .efficient = true, .math = true});
    EXPECT_EQ(without_cudnn(), (SdpBackends{.flash = true, .efficient = true, .math = true}));
  }
  {
    const OnlySdpBackends one({.math = true});
    EXPECT_EQ(without_cudnn(), (SdpBackends{.math = true}));
  }
  const OnlySdpBackends cudnn({.cudnn = true});
  EXPECT_EQ(without_cudnn(), (SdpBackends{.flash = true, .efficient = true, .math = true}));
}

TEST(SdpBackends, CudnnIsLeftOutWhereItWouldRoundTheDropout) {
  const OnlySdpBackends all({.cudnn = true, .flash = true, .efficient = true, .math = true});
  for (const double known : {0.0, 0.0625, 0.125, 0.5}) EXPECT_TRUE(exact_for_dropout(known).cudnn) << known;
  for (const double rounded : {0.1, 0.2, 0.3, 1.0 / 3}) {
    EXPECT_EQ(exact_for_dropout(rounded), (SdpBackends{.flash = true, .efficient = true, .math = true})) << rounded;
  }
}

}  // namespace
}  // namespace gpt::ops
