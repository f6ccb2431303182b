#include "gpt/bench/measurement.h"

#include <gtest/gtest.h>

#include <limits>

#include "bench/tiny_bench_run.h"

namespace gpt::bench {
namespace {

TEST(Measurement, AGpuIsWaitedForOnceInAGroupOfUpdates) {
  EXPECT_EQ(updates_between_waits(at::kCUDA, /*update_seconds=*/0.010, /*updates=*/200), 10);
  EXPECT_EQ(updates_between_waits(at::kCUDA, 0.001, 200), 40) << "a median needs some groups";
  EXPECT_EQ(updates_between_waits(at::kCUDA, 0.500, 200), 1);
  EXPECT_EQ(updates_between_waits(at::kCUDA, 0.010, 3), 1);
  EXPECT_EQ(updates_between_waits(at::kCUDA, std::numeric_limits<double>::infinity(), 200), 1) << "not known";
  EXPECT_EQ(updates_between_waits(at::kCPU, 0.001, 200), 1);
}

// Each update overwrites the loss of the one before.
TEST(Measurement, TheLossIsTheMeanOfTheLastUpdates) {
  const ScratchFolder folder;
  const Config config = tiny_bench_run(folder);
  const auto after = [&config](int64_t warm_up, int64_t updates) {
    return measure(config, {.warm_up = warm_up, .updates = updates}).loss;
  };
  double sum = 0;
  for (int64_t before = 2; before < 12; ++before) sum += after(before, 1);
  EXPECT_NEAR(after(0, 12), sum / 10, 1e-6);
}

TEST(Measurement, SurvivesJson) {
  const Measurement m{.step_ms = 12.5,
                      .cpu_ms = 20.25,
                      .tokens_per_second = 1e5,
                      .peak_bytes = 1LL << 40,
                      .tensor_bytes = 1LL << 39,
                      .threads = 3,
                      .loss = 3.5,
                      .start_seconds = 1.5};
  const Measurement back = measurement_from_json(to_json(m));
  EXPECT_EQ(back.step_ms, m.step_ms);
  EXPECT_EQ(back.cpu_ms, m.cpu_ms);
  EXPECT_EQ(back.tokens_per_second, m.tokens_per_second);
  EXPECT_EQ(back.peak_bytes, m.peak_bytes);
  EXPECT_EQ(back.tensor_bytes, m.tensor_bytes);
  EXPECT_EQ(back.threads, m.threads);
  EXPECT_EQ(back.loss, m.loss);
  EXPECT_EQ(back.start_seconds, m.start_seconds);
}

}  // namespace
}  // namespace gpt::bench
