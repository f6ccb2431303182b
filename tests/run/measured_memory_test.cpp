#include "gpt/run/measured_memory.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "gpt/device/cpu_allocator.h"
#include "gpt/device/device.h"
#include "support/device_cases.h"

namespace gpt::run {
namespace {

class MeasuredMemory : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    device::use_cpu_allocator();
  }

  // After so many updates of a small model.
  std::optional<report::MemoryUse> after(int64_t updates, GradientCheckpointing level, bool is_narrow = false) {
    std::vector<int32_t> ids(20'000);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % 61);
    data::Corpus corpus;
    corpus.train = data::Tokens::from_ids(ids, 64);
    corpus.sources = {corpus.train};
    corpus.vocab_size = 64;
    Config config;
    config.model.n_layer = 4, config.model.n_head = 2, config.model.n_embd = 64, config.model.block_size = 64;
    config.model.vocab_size = 64, config.model.dropout = 0;
    config.training.batch_size = 16, config.training.execution.gradient_checkpointing = level;
    device::reset_cpu_memory_peak();
    device::Precision precision;
    if (is_narrow) precision.dtype = Dtype::bfloat16, precision.end_to_end = true;
    State state(config, corpus, device(), precision);
    parameters = static_cast<double>(state.model.parameters().layout().size);
    TrainStep step({state.model, *state.optimizer, state.scaler}, {precision}, config.training);
    for (int64_t i = 0; i < updates; ++i) run_update(step, state.loader, 1, 1e-3, i, [] { return false; });
    peak = static_cast<double>(device::peak_tensor_bytes(device()));
    return measured_memory(state, step);
  }

  double parameters = 0, peak = 0;
};

TEST_P(MeasuredMemory, PartsAddUpToThePeak) {
  const auto use = after(3, GradientCheckpointing::none);
  if (!use) GTEST_SKIP() << "the allocator that counts is not in use, as under the address sanitizer";
  EXPECT_EQ(use->weights, 4 * parameters);
  EXPECT_EQ(use->gradients, 4 * parameters);
  EXPECT_EQ(use->optimizer, 8 * parameters);
  EXPECT_EQ(use->total(), peak);
  EXPECT_EQ(use->data > 0, device().is_cuda());
  // 4 blocks keep at least the stream, q, k, v, what attention gave and three branches of the MLP, of 16 x 64 tokens.
  EXPECT_GT(use->activations, 4.0 * 16 * 64 * 4 * (64 + 3 * 64 + 64 + 3 * 192));
  const auto block = after(3, GradientCheckpointing::block);
  EXPECT_LT(block->activations, use->activations / 3);
  EXPECT_EQ(block->weights, use->weights);
}

TEST_P(MeasuredMemory, GradientsMayHaveSixteenBits) {
  const auto use = after(3, GradientCheckpointing::none, /*is_narrow=*/true);
  if (!use) GTEST_SKIP() << "the allocator that counts is not in use, as under the address sanitizer";
  EXPECT_EQ(use->weights, 6 * parameters);
  EXPECT_EQ(use->gradients, 2 * parameters);
  EXPECT_EQ(use->total(), peak);
}

TEST_P(MeasuredMemory, IsNotKnownBeforeTheSecondUpdate) { EXPECT_FALSE(after(1, GradientCheckpointing::none)); }

INSTANTIATE_ON_DEVICES(MeasuredMemory);

TEST(MemoryUse, IsOneLine) {
  const report::MemoryUse use{.weights = 4e6, .gradients = 4e6, .optimizer = 8e6, .activations = 1e9};
  EXPECT_EQ(to_text(use), "1.02 GB: weights 4.00 MB, gradients 4.00 MB, optimizer 8.00 MB, activations 1.00 GB");
}

}  // namespace
}  // namespace gpt::run
