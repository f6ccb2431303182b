#include "gpt/batches/data_loader.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <ostream>
#include <set>
#include <vector>

#include "support/device_cases.h"

namespace gpt::batches {
namespace {

// Token i is i: a batch then says which positions it took.
data::Tokens counting(int64_t size, int64_t vocab_size = 65536) {
  std::vector<int32_t> ids(size);
  std::iota(ids.begin(), ids.end(), 0);
  return data::Tokens::from_ids(ids, vocab_size);
}

// One way of making batches; all must give the same ones.
struct Way {
  const char* name;
  Resident resident;
  int64_t num_workers, prefetch_factor;
  bool persistent_workers, pin_memory;
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

constexpr Way kWays[] = {
    {"resident", Resident::on, 4, 2, true, true},
    {"inline", Resident::off, 0, 2, true, true},
    {"one_worker", Resident::off, 1, 1, true, false},
    {"workers", Resident::off, 3, 2, true, true},
    {"workers_of_an_epoch", Resident::off, 3, 2, false, true},
};

DataConfig config_of(const Way& way) {
  DataConfig config;
  config.resident = way.resident;
  config.num_workers = way.num_workers;
  config.prefetch_factor = way.prefetch_factor;
  config.persistent_workers = way.persistent_workers;
  config.pin_memory = way.pin_memory;
  return config;
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu().contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

// The first token of each sample, after checking that the batch is windows of counting() with their targets.
std::vector<int64_t> starts_of(const Batch& batch, int64_t block_size) {
  EXPECT_EQ(batch.inputs.scalar_type(), at::kLong);
  EXPECT_TRUE(batch.inputs.is_contiguous() && batch.targets.is_contiguous());
  EXPECT_EQ(batch.inputs.size(1), block_size);
  EXPECT_EQ(batch.targets.sizes(), batch.inputs.sizes());
  const auto inputs = values(batch.inputs), targets = values(batch.targets);
  std::vector<int64_t> starts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i % block_size == 0) starts.push_back(inputs[i]);
    EXPECT_EQ(inputs[i], starts.back() + static_cast<int64_t>(i) % block_size);
    EXPECT_EQ(targets[i], inputs[i] + 1);
  }
  return starts;
}

std::vector<std::vector<int64_t>> take(DataLoader& loader, int64_t batches, int64_t block_size) {
  std::vector<std::vector<int64_t>> result;
  for (int64_t i = 0; i < batches; ++i) result.push_back(starts_of(loader.next(), block_size));
  return result;
}

class DataLoaderTest : public testing::TestWithParam<std::tuple<Way, DeviceCase>> {
 protected:
  DataLoader loader(int64_t tokens, int64_t batch_size, int64_t block_size, uint64_t seed = 1) const {
    return DataLoader(counting(tokens), config_of(way()), batch_size, block_size, seed, device());
  }
  Way way() const { return std::get<0>(GetParam()); }
  at::Device device() const { return std::get<1>(GetParam()).device; }
  void SetUp() override { GPT_SKIP_WITHOUT(std::get<1>(GetParam())); }
};

TEST_P(DataLoaderTest, AnEpochIsEverySampleOnce) {
  const int64_t T = 8, B = 5, N = 1003;
  DataLoader loader = this->loader(N, B, T);
  ASSERT_EQ(loader.samples_per_epoch(), (N - T) / T);  // 124
  ASSERT_EQ(loader.batches_per_epoch(), 25);
  std::set<int64_t> offsets;
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 20; ++epoch) {
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < 25; ++i) {
      EXPECT_EQ(loader.position(), (data::DataPosition{epoch, i * B}));
      const auto batch = starts_of(loader.next(), T);
      EXPECT_EQ(batch.size(), i < 24 ? B : 4);  // the last batch is partial and kept
      starts.insert(starts.end(), batch.begin(), batch.end());
    }
    const int64_t offset = starts[0] % T;
    offsets.insert(offset);
    orders.insert(starts);
    std::sort(starts.begin(), starts.end());
    for (int64_t i = 0; i < 124; ++i) ASSERT_EQ(starts[i], i * T + offset) << "epoch " << epoch;
  }
  EXPECT_EQ(orders.size(), 20u);
  EXPECT_GE(offsets.size(), 5u);  // out of 8, in 20 draws
}

TEST_P(DataLoaderTest, EveryWayGivesTheSameBatches) {
  Way plain = kWays[1];
  DataLoader reference(counting(203), config_of(plain), 4, 7, 42, at::kCPU);
  DataLoader loader = this->loader(203, 4, 7, 42);
  EXPECT_EQ(take(loader, 40, 7), take(reference, 40, 7));
}

TEST_P(DataLoaderTest, ContinuesFromAnyPosition) {
  const int64_t T = 6, B = 4, total = 23;  // 3 epochs and a little
  const auto all = [&] {
    DataLoader loader = this->loader(173, B, T);
    return take(loader, total, T);
  }();
  DataLoader resumed = loader(173, B, T);
  for (int64_t stop = 0; stop < total; ++stop) {
    DataLoader stopped = loader(173, B, T);
    take(stopped, stop, T);
    resumed.seek(stopped.position());
    EXPECT_EQ(resumed.position(), stopped.position());
    const auto rest = take(resumed, total - stop, T);
    EXPECT_EQ(rest, std::vector(all.begin() + stop, all.end())) << "stopped after " << stop;
  }
}

TEST_P(DataLoaderTest, TokensOf32BitsComeThrough) {
  DataLoader loader(data::Tokens::from_ids({70000, 1, 70001}, 70002), config_of(way()), 1, 2, 1, device());
  const Batch batch = loader.next();
  EXPECT_EQ(values(batch.inputs), (std::vector<int64_t>{70000, 1}));
  EXPECT_EQ(values(batch.targets), (std::vector<int64_t>{1, 70001}));
  EXPECT_EQ(batch.inputs.device().type(), device().type());
}

INSTANTIATE_TEST_SUITE_P(Ways, DataLoaderTest, testing::Combine(testing::ValuesIn(kWays), testing::ValuesIn(kDevices)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
                         });

// The smallest splits: one sample, whose offset takes what is left over.
TEST(DataLoader, KeepsOneSampleOfAShortSplit) {
  for (int64_t N = 9; N <= 24; ++N) {
    DataLoader loader(counting(N), {}, 4, 8, 3, at::kCPU);
    ASSERT_EQ(loader.samples_per_epoch(), N < 24 ? 1 : 2) << N;
    std::set<int64_t> offsets;
    for (int epoch = 0; epoch < 100; ++epoch) {
      for (const int64_t start : starts_of(loader.next(), 8)) offsets.insert(start % 8);
    }
    EXPECT_EQ(offsets.size(), N < 16 ? N - 8 : 8) << N;  // every offset that fits occurs
  }
  EXPECT_THROW(DataLoader(counting(8), {}, 4, 8, 3, at::kCPU), c10::Error);
}

TEST(DataLoader, SeedsDiffer) {
  DataLoader one(counting(1000), {}, 8, 8, 1, at::kCPU), two(counting(1000), {}, 8, 8, 2, at::kCPU);
  EXPECT_NE(take(one, 3, 8), take(two, 3, 8));
}

TEST(DataLoader, RefusesAPositionOutsideTheEpoch) {
  DataLoader loader(counting(100), {}, 4, 8, 1, at::kCPU);
  EXPECT_NO_THROW(loader.seek({3, loader.samples_per_epoch() - 1}));
  EXPECT_THROW(loader.seek({3, loader.samples_per_epoch()}), c10::Error);
  EXPECT_THROW(loader.seek({-1, 0}), c10::Error);
}

TEST(DataLoader, KeepsTokensInMemoryOnTheCpuUnlessToldOtherwise) {
  DataConfig config;
  EXPECT_TRUE(DataLoader(counting(100), config, 4, 8, 1, at::kCPU).resident());
  config.resident = Resident::off;
  EXPECT_FALSE(DataLoader(counting(100), config, 4, 8, 1, at::kCPU).resident());
}

class SplitWindowsTest : public DeviceTest {};

TEST_P(SplitWindowsTest, HaveEveryTargetOnce) {
  for (int64_t N = 0; N <= 40; ++N) {
    const SplitWindows windows(counting(N), 4, GetParam().device);
    std::vector<int64_t> inputs, targets;
    const auto take = [&](const Batch& batch) {
      EXPECT_EQ(batch.inputs.device().type(), GetParam().device.type());
      for (const int64_t id : values(batch.inputs)) inputs.push_back(id);
      for (const int64_t id : values(batch.targets)) targets.push_back(id);
    };
    for (int64_t window = 0; window < windows.size(); ++window) take(windows.batch({window}));
    if (windows.rest() > 0) take(windows.rest_batch());
    ASSERT_EQ(targets.size(), std::max<int64_t>(0, N - 1)) << N;
    for (int64_t i = 0; i + 1 < N; ++i) {
      EXPECT_EQ(inputs[i], i);
      EXPECT_EQ(targets[i], i + 1);
    }
    EXPECT_THROW((void)windows.batch({windows.size()}), c10::Error);
  }
}

TEST_P(SplitWindowsTest, AreTakenInAnyOrder) {
  const SplitWindows windows(counting(4 * 4 + 1 + 2), 4, GetParam().device);  // 4 windows and 2 targets
  const Batch batch = windows.batch({2, 0, 3});
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(values(batch.targets), (std::vector<int64_t>{9, 10, 11, 12, 1, 2, 3, 4, 13, 14, 15, 16}));
  EXPECT_EQ(windows.targets_of(2)[0], 9);
  EXPECT_EQ(windows.targets_of(4).size(), 2);
  EXPECT_EQ(values(windows.rest_batch().targets), (std::vector<int64_t>{17, 18}));
}

INSTANTIATE_ON_DEVICES(SplitWindowsTest);

}  // namespace
}  // namespace gpt::batches
