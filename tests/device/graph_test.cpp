// CUDA graphs themselves; a CPU has none.
#include "gpt/device/graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "gpt/device/device.h"
#include "gpt/device/random_state.h"
#include "support/device_cases.h"

namespace gpt::device {
namespace {

class GraphTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    use_recordable_stream(device());
    graphs_ = graphs_of(device());
    if (device().is_cpu()) {
      EXPECT_FALSE(graphs_);
      GTEST_SKIP() << "a CPU has no graphs";
    }
  }

  std::unique_ptr<Graphs> graphs_;
};

TEST_P(GraphTest, ReplaysReadWhatIsThereThen) {
  const at::Tensor x = full({4}, 1), sum = full({4}, 0);
  const auto graph = graphs_->make();
  graph->record([&] { sum.add_(x * 2); });
  EXPECT_EQ(sum.sum().item<double>(), 0) << "a recording runs nothing";
  graph->replay();
  x.fill_(5);
  graph->replay();
  EXPECT_EQ(sum.sum().item<double>(), 4 * (2 + 10));
}

TEST_P(GraphTest, RandomNumbersAreThoseOfTheTime) {
  const at::Tensor drawn = full({100}, 0), expected = full({200}, 0);
  const auto graph = graphs_->make();
  graph->record([&] { drawn.uniform_(); });
  for (const uint64_t seed : {3, 4}) {
    seed_random_state(device(), seed);
    expected.narrow(0, 0, 100).uniform_();
    expected.narrow(0, 100, 100).uniform_();
    seed_random_state(device(), seed);
    for (const int64_t begin : {0, 100}) {
      graph->replay();
      EXPECT_TRUE(drawn.equal(expected.narrow(0, begin, 100))) << seed;
    }
  }
}

// The memory of a step that runs without a graph beside one that is recorded exists once.
TEST_P(GraphTest, WorkWithoutAGraphTakesItsMemory) {
  constexpr int64_t kCount = 64 << 20;
  const at::Tensor sum = full({}, 0);
  const auto work = [&] { sum.add_(at::full({kCount}, 1, sum.options()).sum()); };
  const auto graph = graphs_->make();
  graph->record(work);
  graph->replay();
  synchronize(device());
  // Bytes of this process alone, beside which others may use the device.
  const auto reserved_bytes = [this] {
    return at::getDeviceAllocator(device().type())->getDeviceStats(device().index()).reserved_bytes[0].current;
  };
  const int64_t before = reserved_bytes();
  graphs_->run(work);
  graph->replay();
  EXPECT_EQ(sum.item<double>(), 3.0 * kCount);
  EXPECT_LT(reserved_bytes() - before, kCount);  // kCount values have 4 bytes each
}

TEST_P(GraphTest, AfterAFailedRecordingEverythingWorksAsBefore) {
  const at::Tensor x = full({4}, 1);
  EXPECT_THROW(graphs_->make()->record([&] {
    x.uniform_();
    (void)x.sum().item<double>();  // waits for the device
  }),
               c10::Error);
  EXPECT_NO_THROW(x.uniform_());
  const at::Tensor later = at::empty({1 << 20}, x.options());
  EXPECT_GT((later.fill_(1) + x.sum()).sum().item<double>(), 1 << 20);
  const auto graph = graphs_->make();
  graph->record([&] { x.fill_(7); });
  graph->replay();
  EXPECT_EQ(x.sum().item<double>(), 28);
}

INSTANTIATE_ON_DEVICES(GraphTest);

}  // namespace
}  // namespace gpt::device
