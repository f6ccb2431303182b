#include "gpt/core/seeds.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

// mix64(increment) is the first output of SplitMix64 seeded with 0, published with the generator.
TEST(Mix64, IsSplitMix64) { EXPECT_EQ(mix64(0x9E3779B97F4A7C15u), 0xE220A8397B1DCDAFu); }

}  // namespace
}  // namespace gpt
