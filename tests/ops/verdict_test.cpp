// What is decided about an update, on every device and with the CUDA kernel under emulation.
#include "gpt/ops/verdict.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

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

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// How far above the median of the others a value lies, in their deviations, which are at least such a share of the median.
double deviations_above(double value, const std::vector<double>& others, double least_share) {
  const double median = median_of(others);
  std::vector<double> distances;
  for (const double other : others) distances.push_back(std::abs(other - median));
  return (value - median) / std::max(1.4826 * median_of(distances), least_share * median);
}

class SpikeTest : public VerdictTest {
 protected:
  void watch(int64_t window, double threshold = 6) { watch_ = new_watch(device(), window, threshold); }

  // A watch that has seen these, the same losses as norms.
  void watch(const std::vector<double>& seen, double threshold) {
    const auto size = static_cast<int64_t>(seen.size());
    watch(size, threshold);
    for (int64_t row = 0; row < 2; ++row) watch_.window.select(0, row).copy_(at::tensor(seen, at::kFloat));
    watch_.accepted.fill_(size + 3);
  }

  std::optional<Spike> spike_in(float loss, float norm, std::optional<float> scale = {}) {
    judge({.loss = scalar(loss), .norm = scalar(norm), .scale = scale ? scalar(*scale) : at::Tensor(), .tokens = {}}, 1,
          verdict_, counts_, watch_);
    const std::optional<Spike> spike = spike_of(verdict_);
    EXPECT_EQ(number(verdict_.skipped), spike || !std::isfinite(loss) || !std::isfinite(norm) ? 1 : 0);
    return spike;
  }
  static int64_t count(const at::Tensor& of) { return of.item<int64_t>(); }

  SpikeWatch watch_;
};

// One, two and many values for a thread of a block, an odd and an even number of them, equal ones among them.
TEST_P(SpikeTest, IsFarAboveTheMedianOfTheWindow) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const int64_t size : {8, 9, 128, 301, 1000}) {
    std::vector<double> seen;
    for (int64_t i = 0; i < size; ++i)
      seen.push_back(std::round(64 * std::abs(3 + normal(random))) / 64);  // exact in float32
    int spikes = 0;
    for (int i = 0; i < 12; ++i) {
      SCOPED_TRACE(testing::Message() << "value " << i << " of " << size);
      watch(seen, /*threshold=*/1.5);
      const float value = std::abs(3 + 2 * normal(random));
      const bool is_expected = deviations_above(value, seen, 0.005) > 1.5;
      spikes += is_expected;
      const std::optional<Spike> in_loss = spike_in(value, /*norm=*/0);
      ASSERT_EQ(in_loss.has_value(), is_expected);
      watch(seen, /*threshold=*/1.5);
      const std::optional<Spike> in_norm = spike_in(/*loss=*/0, value);
      ASSERT_EQ(in_norm.has_value(), deviations_above(value, seen, 0.2) > 1.5);
      if (!in_loss || !in_norm) continue;
      EXPECT_TRUE(in_loss->is_in_loss);
      EXPECT_FALSE(in_norm->is_in_loss);
      for (const auto& spike : {*in_loss, *in_norm}) {
        EXPECT_EQ(spike.value, value);
        EXPECT_FLOAT_EQ(static_cast<float>(spike.median), static_cast<float>(median_of(seen)));
      }
    }
    EXPECT_GT(spikes, 0) << size;
    EXPECT_LT(spikes, 12) << size;
  }
}

TEST_P(SpikeTest, IsOnlyToldByAFullWindow) {
  watch(8);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(spike_in(i == 5 ? 1000 : 2, 1)) << i;
  EXPECT_TRUE(spike_in(1000, 1));
  EXPECT_FALSE(spike_in(0.01f, 0.01f)) << "far below";
}

// The values that stay are those of the last accepted updates.
TEST_P(SpikeTest, IsCountedAndChangesNothingElse) {
  watch(8);
  for (int i = 0; i < 11; ++i) spike_in(2, 1);
  const at::Tensor before = watch_.window.clone();
  EXPECT_TRUE(spike_in(9, 1));
  EXPECT_TRUE(spike_in(2, 9));
  EXPECT_FALSE(spike_in(kNan, 1));
  EXPECT_TRUE(watch_.window.equal(before));
  EXPECT_EQ(count(watch_.accepted), 11);
  EXPECT_EQ(count(watch_.spikes), 2);
  EXPECT_EQ(count(counts_.skipped), 3);
  EXPECT_EQ(count(counts_.skipped_in_a_row), 3);
  EXPECT_EQ(counts_.loss_sum.item<double>(), 11 * 2);
  EXPECT_FALSE(spike_in(2.01f, 1.01f));
  EXPECT_EQ(count(counts_.skipped_in_a_row), 0);
  EXPECT_EQ(count(watch_.accepted), 12);
  EXPECT_EQ(number(watch_.window[0][11 % 8]), 2.01f);
  EXPECT_EQ(number(watch_.window[1][11 % 8]), 1.01f);
}

TEST_P(SpikeTest, TheOldestOfTheWindowMakesRoom) {
  watch(8);
  for (int i = 0; i < 30; ++i) {
    EXPECT_FALSE(spike_in(100 - i, 1)) << i;
    EXPECT_EQ(number(watch_.window[0][i % 8]), 100 - i);
    EXPECT_EQ(count(watch_.accepted), i < 8 ? i + 1 : 8 + (i + 1) % 8);
  }
}

// With a threshold of 6 above 1.03 times what losses are, and 2.2 times what norms are.
TEST_P(SpikeTest, OfEqualNumbersBeginsAtAShareOfThem) {
  watch(std::vector<double>(9, 2.0), 6);
  EXPECT_FALSE(spike_in(2.05f, 4.35f));
  EXPECT_TRUE(spike_in(2.07f, 2));
  EXPECT_TRUE(spike_in(2, 4.45f));
  watch(std::vector<double>(9, 0.0), 6);
  EXPECT_FALSE(spike_in(0, 0));
}

TEST_P(SpikeTest, OfTheNormIsWithoutTheLossScale) {
  watch(std::vector<double>(9, 2.0), 6);
  EXPECT_FALSE(spike_in(2, 2 * 1024, 1024));
  EXPECT_EQ(spike_in(2, 5 * 1024, 1024).value_or(Spike{}).value, 5);
}

TEST_P(SpikeTest, RejectsAWindowThatDoesNotFit) {
  watch(8);
  watch_.window = watch_.window.repeat({2, 1});
  EXPECT_THROW(spike_in(2, 1), c10::Error);
  watch(8);
  watch_.accepted = watch_.accepted.view({1});
  EXPECT_THROW(spike_in(2, 1), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(OnDevices, SpikeTest, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(OnDevices, VerdictTest, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpt::ops
