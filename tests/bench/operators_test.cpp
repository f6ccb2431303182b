#include "gpt/bench/operators.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/device_cases.h"

namespace gpt::bench {
namespace {

Config small_run(Mlp mlp) {
  Config config;
  config.model.n_layer = 3, config.model.n_head = 2, config.model.n_embd = 32, config.model.block_size = 16;
  config.model.mlp = mlp, config.model.vocab_size = 70;
  config.training.batch_size = 2;
  return config;
}

class OperatorSpeedsTest : public DeviceTest {
 protected:
  // Calls it often enough to see each once.
  OperatorSpeeds measured(const Config& config, at::ScalarType type, int64_t stop_after = -1) {
    return measure_operators(config, describe_device(device()), type, /*seconds=*/0,
                             [&](double share, const std::string& name) {
                               EXPECT_TRUE(share >= 0 && share < 1) << share;
                               names.push_back(name);
                               return std::ssize(names) != stop_after;
                             });
  }

  std::vector<std::string> names;
};

TEST_P(OperatorSpeedsTest, EveryOperatorOfEitherArchitectureInEitherPrecision) {
  for (const Mlp mlp : {Mlp::gelu, Mlp::swiglu, Mlp::geglu}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      names.clear();
      const OperatorSpeeds speeds = measured(small_run(mlp), type);
      EXPECT_TRUE(speeds.complete);
      EXPECT_GT(speeds.flops, 0);
      EXPECT_GT(speeds.bandwidth, 0);
      // Ten with and without their backward passes; batches, gradient norm and AdamW.
      ASSERT_EQ(speeds.rows.size(), 23);
      for (const OperatorSpeed& row : speeds.rows) {
        EXPECT_GT(row.ours_ms, 0) << row.name;
        EXPECT_GT(row.libtorch_ms, 0) << row.name;
      }
    }
  }
}

// The work for 32 tokens is counted by hand.
TEST_P(OperatorSpeedsTest, WorkIsWhatTheOperatorsDo) {
  const auto work = [&](const std::string& name, at::ScalarType type, int64_t accumulated = 2) {
    Config config = small_run(Mlp::gelu);
    config.training.gradient_accumulation_steps = accumulated;
    for (const OperatorSpeed& row : measured(config, type).rows) {
      if (row.name == name) return row.work;
    }
    return 0.0;
  };
  EXPECT_EQ(work("product, MLP in", at::kFloat), 2.0 * 32 * 32 * 128);
  EXPECT_EQ(work("product, MLP in, with backward", at::kFloat), 3 * 2.0 * 32 * 32 * 128);
  EXPECT_EQ(work("attention", at::kFloat), 2 * 2 * 2.0 * 16 * 16 * 32 / 2);
  EXPECT_EQ(work("GELU", at::kFloat), 2 * 4.0 * 32 * 128);
  EXPECT_EQ(work("GELU", at::kBFloat16), 2 * 2.0 * 32 * 128);
  EXPECT_EQ(work("head and cross entropy", at::kFloat), 2.0 * 32 * 32 * 128) << "70 are padded to 128";
  EXPECT_EQ(work("batch of tokens", at::kFloat), 2 * 17 * 4 + 2 * 32 * 8);
  const double parameters = work("AdamW", at::kFloat) / 28;
  EXPECT_EQ(work("AdamW", at::kBFloat16), 30 * parameters);
  EXPECT_EQ(work("AdamW", at::kBFloat16, /*accumulated=*/1), 28 * parameters) << "gradients of 16 bits";
  EXPECT_EQ(work("norm of the gradients", at::kBFloat16, /*accumulated=*/1), 2 * parameters);
  EXPECT_EQ(work("embedding, with backward", at::kBFloat16, /*accumulated=*/1), 32 * 32 * (3 * 2 + 2 * 2));
  EXPECT_EQ(work("embedding, with backward", at::kBFloat16), 32 * 32 * (3 * 2 + 2 * 4));
  EXPECT_EQ(work("RoPE and the split into heads", at::kBFloat16), 2 * 2.0 * 32 * 2 * 32) << "queries and keys";
  EXPECT_EQ(work("RoPE and the split into heads, with backward", at::kBFloat16), 2.0 * 32 * 32 * (2 * 2 + 2 * 3));
}

std::set<std::string> called;  // LibTorch's operators

// A user asks what an operator costs in the run of the configuration: with its positions, its dropout and its biases.
TEST_P(OperatorSpeedsTest, OperatorsAreThoseOfTheConfiguration) {
  const auto called_for = [&](const Config& config) {
    called.clear();
    const auto note = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
      called.insert(function.name());
      return nullptr;
    };
    const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note));
    measured(config, at::kFloat);
    at::removeCallback(handle);
    return called.contains("aten::bernoulli_") || called.contains("aten::native_dropout");
  };
  Config config = small_run(Mlp::gelu);
  config.model.dropout = 0;
  EXPECT_FALSE(called_for(config));
  EXPECT_FALSE(called.contains("aten::addmm"));
  config.model.bias = true;
  EXPECT_FALSE(called_for(config));
  EXPECT_TRUE(called.contains("aten::addmm"));
  config.model.dropout = 0.1;
  EXPECT_TRUE(called_for(config));

  EXPECT_EQ(std::ranges::count(names, "RoPE and the split into heads"), 3);
  config.model.position = Position::learned;
  called_for(config);
  EXPECT_EQ(std::ranges::count(names, "RoPE and the split into heads"), 3);
}

std::vector<bool> has_divisor;  // whether each call of LibTorch's AdamW had one

// With a divisor LibTorch's kernel writes all gradients, which ours does not.
TEST_P(OperatorSpeedsTest, LibTorchsUpdateIsNotToldToDivideTheGradients) {
  has_divisor.clear();
  const auto note = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    constexpr size_t kGradScale = 13;
    if (std::string_view(function.name()) == "aten::_fused_adamw_")
      has_divisor.push_back(!function.inputs()[kGradScale].isNone());
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note).needsInputs(true));
  (void)measured(small_run(Mlp::gelu), at::kFloat);
  at::removeCallback(handle);
  EXPECT_FALSE(has_divisor.empty());
  for (const bool has : has_divisor) EXPECT_FALSE(has);
}

TEST_P(OperatorSpeedsTest, KeepsWhatWasMeasuredBeforeASignal) {
  const OperatorSpeeds speeds = measured(small_run(Mlp::gelu), at::kFloat, /*stop_after=*/4);
  EXPECT_FALSE(speeds.complete);
  EXPECT_EQ(speeds.rows.size(), 2);  // the machine comes first
}

INSTANTIATE_ON_DEVICES(OperatorSpeedsTest);

}  // namespace
}  // namespace gpt::bench
