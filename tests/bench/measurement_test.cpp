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

// At the end of an epoch an update has few tokens and is soon done.
TEST(Measurement, AShortBatchDoesNotCountAsAFullOne) {
  const TypicalUpdate update = typical_update({{1, 1000, 0.5}, {1, 1000, 0.5}, {1, 100, 0.0625}, {1, 1000, 0.5}});
  EXPECT_EQ(update.tokens_per_second, 2000);
  EXPECT_EQ(update.tokens, 1000);
  EXPECT_EQ(update.seconds, 0.5);
  EXPECT_EQ(typical_update({{10, 10'000, 5}, {10, 9'100, 4.6875}, {5, 5000, 2.5}}).tokens_per_second, 2000);
}

TEST(Measurement, SurvivesJson) {
  const Measurement m{.step_ms = 12.5,
                      .cpu_ms = 20.25,
                      .tokens_per_second = 1e5,
                      .peak_bytes = 1LL << 40,
                      .tensor_bytes = 1LL << 39,
                      .threads = 3,
                      .loss = 3.5,
                      .start_seconds = 1.5,
                      .work = {{"products", {.flops = 1e12, .bytes = 2.5e9}}}};
  const Measurement back = measurement_from_json(to_json(m));
  EXPECT_EQ(back.step_ms, m.step_ms);
  EXPECT_EQ(back.cpu_ms, m.cpu_ms);
  EXPECT_EQ(back.tokens_per_second, m.tokens_per_second);
  EXPECT_EQ(back.peak_bytes, m.peak_bytes);
  EXPECT_EQ(back.tensor_bytes, m.tensor_bytes);
  EXPECT_EQ(back.threads, m.threads);
  EXPECT_EQ(back.loss, m.loss);
  EXPECT_EQ(back.start_seconds, m.start_seconds);
  ASSERT_EQ(back.work.size(), 1);
  EXPECT_EQ(back.work[0].name, "products");
  EXPECT_EQ(back.work[0].work.flops, 1e12);
  EXPECT_EQ(back.work[0].work.bytes, 2.5e9);
  const plan::MachineSpeed speed = machine_speed_from_json(to_json(plan::MachineSpeed{2e12, 3e9}));
  EXPECT_EQ(speed.flops, 2e12);
  EXPECT_EQ(speed.bytes_per_second, 3e9);
}

}  // namespace
}  // namespace gpt::bench
