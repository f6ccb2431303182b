// What is decided about an update, on every device and with the CUDA kernel under emulation.
#include "gpt/ops/verdict.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "support/device_cases.h"
#include "support/emulated_kernels.h"

namespace gpt::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

class VerdictTest : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(GetParam());
    if (GetParam().is_emulated) emulated_.emplace();
    verdict_ = new_verdict(device()), counts_ = no_updates(device());
  }

  static at::Device device() { return GetParam().device; }
  static at::Tensor scalar(float value) { return at::full({}, value, at::TensorOptions(device()).dtype(at::kFloat)); }
  static float number(const at::Tensor& scalar) { return scalar.item<float>(); }

  void judge_update(float loss, float norm, double max_norm = 1, std::optional<float> scale = {}) {
    judge({scalar(loss), scalar(norm), scale ? scalar(*scale) : at::Tensor()}, max_norm, verdict_, counts_);
  }

  std::optional<test::EmulatedKernels> emulated_;
  Verdict verdict_;
  UpdateCounts counts_;
};

TEST_P(VerdictTest, DividesByNormOverLimitOnlyAboveTheLimit) {
  judge_update(2, 5, 2);
  EXPECT_EQ(number(verdict_.grad_norm), 5);
  EXPECT_FLOAT_EQ(number(verdict_.divisor), (5.0f + 1e-6f) / 2);
  EXPECT_EQ(number(verdict_.skipped), 0);
  judge_update(2, 1.9f, 2);
  EXPECT_EQ(number(verdict_.divisor), 1);
  judge_update(2, 1e9f, /*max_norm=*/0);
  EXPECT_EQ(number(verdict_.divisor), 1);
}

// The gradients keep the loss's scale, which the norm is without.
TEST_P(VerdictTest, DividesByTheScaleToo) {
  judge_update(2, 5 * 1024, 2, 1024);
  EXPECT_EQ(number(verdict_.grad_norm), 5);
  EXPECT_FLOAT_EQ(number(verdict_.divisor), 1024 * (5.0f + 1e-6f) / 2);
  judge_update(2, 1024, 2, 1024);
  EXPECT_EQ(number(verdict_.divisor), 1024);
}

TEST_P(VerdictTest, WhatIsNotFiniteIsSkippedAndCounted) {
  judge_update(2, 1);
  for (const auto& [loss, norm] : {std::pair(kNan, 1.0f), {kInf, 1.0f}, {2.0f, kInf}, {2.0f, kNan}, {-kInf, kNan}}) {
    judge_update(loss, norm);
    EXPECT_EQ(number(verdict_.skipped), 1) << loss << " " << norm;
  }
  EXPECT_EQ(counts_.skipped.item<int64_t>(), 5);
  EXPECT_EQ(counts_.skipped_in_a_row.item<int64_t>(), 5);
  judge_update(0.5, 1);
  EXPECT_EQ(number(verdict_.skipped), 0);
  EXPECT_EQ(counts_.skipped.item<int64_t>(), 5);
  EXPECT_EQ(counts_.skipped_in_a_row.item<int64_t>(), 0);
  EXPECT_EQ(counts_.loss_sum.item<double>(), 2.5);
  EXPECT_EQ(counts_.token_sum.item<double>(), 2);
}

TEST_P(VerdictTest, ALossCountsForEachOfItsTokens) {
  for (const auto& [loss, tokens] : {std::pair(2.0f, 96.0f), {kNan, 96.0f}, {5.0f, 32.0f}})
    judge({.loss = scalar(loss), .norm = scalar(1), .scale = {}, .tokens = scalar(tokens)}, 1, verdict_, counts_);
  EXPECT_EQ(counts_.loss_sum.item<double>(), 2 * 96 + 5 * 32);
  EXPECT_EQ(counts_.token_sum.item<double>(), 96 + 32);
}

TEST_P(VerdictTest, ANormThatIsInfiniteStaysVisible) {
  judge_update(2, kInf, 1, 1024);
  EXPECT_EQ(number(verdict_.grad_norm), kInf);
}

TEST_P(VerdictTest, RejectsWhatDoesNotFit) {
  EXPECT_THROW(judge({scalar(1), scalar(1).to(at::kDouble), {}}, 1, verdict_, counts_), c10::Error);
  counts_.skipped = scalar(0);
  EXPECT_THROW(judge_update(1, 1), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(OnDevices, VerdictTest, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpt::ops
