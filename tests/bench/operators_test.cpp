#include "gpt/bench/operators.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench/unpadded.h"
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
    return measure_operators(config, device::describe_device(device()), type, /*seconds=*/0,
                             [&](double share, const std::string& name) {
                               EXPECT_TRUE(share >= 0 && share < 1) << share;
                               names.push_back(name);
                               return std::ssize(names) != stop_after;
                             });
  }

  std::vector<std::string> names;
};

TEST_P(OperatorSpeedsTest, EveryOperatorOfEitherArchitectureInEitherPrecision) {
  for (const Mlp mlp : {Mlp::gelu, Mlp::relu2, Mlp::swiglu, Mlp::geglu}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      names.clear();
      const OperatorSpeeds speeds = measured(small_run(mlp), type);
      EXPECT_TRUE(speeds.complete);
      EXPECT_GT(speeds.speed.flops, 0);
      EXPECT_GT(speeds.speed.bytes_per_second, 0);
      // Ten with and without their backward passes; batches, gradient norm and AdamW.
      ASSERT_EQ(speeds.rows.size(), 23);
      for (const OperatorSpeed& row : speeds.rows) {
        EXPECT_GT(row.ours_ms, 0) << row.name;
        EXPECT_GT(row.libtorch_ms, 0) << row.name;
      }
    }
  }
}

TEST_P(OperatorSpeedsTest, AWindowIsMeasuredBesideFullAttention) {
  Config config = small_run(Mlp::gelu);
  config.model.attention_window = 4;
  std::map<std::string, double> flops;
  for (const OperatorSpeed& row : measured(config, at::kFloat).rows) flops[row.name] = row.work.flops;
  EXPECT_DOUBLE_EQ(flops.at("attention, window 4"), flops.at("attention") * 58 / 136);
  EXPECT_TRUE(flops.contains("attention, window 4, with backward"));
}

TEST_P(OperatorSpeedsTest, BlocksAreMeasuredBesideFullAttention) {
  if (device().is_cuda()) GTEST_SKIP() << "a CPU alone computes them";
  Config config = small_run(Mlp::gelu);
  config.model.block_size = 256, config.model.attention = AttentionForm::blocks, config.model.attention_top_blocks = 1;
  std::map<std::string, double> flops;
  for (const OperatorSpeed& row : measured(config, at::kFloat).rows) flops[row.name] = row.work.flops;
  EXPECT_DOUBLE_EQ(flops.at("attention, 1 block of 64"), flops.at("attention") * chosen_share(256, 64, 1));
  EXPECT_TRUE(flops.contains("attention, 1 block of 64, with backward"));
}

// The work for 32 tokens is counted by hand.
TEST_P(OperatorSpeedsTest, WorkIsWhatTheOperatorsDo) {
  using WorkOf = std::map<std::string, plan::Work>;
  const auto work = [&](at::ScalarType type, int64_t accumulated) {
    Config config = small_run(Mlp::gelu);
    config.training.gradient_accumulation_steps = accumulated;
    WorkOf result;
    for (const OperatorSpeed& row : measured(config, type).rows) result[row.name] = row.work;
    return result;
  };
  const WorkOf wide = work(at::kFloat, 2), mixed = work(at::kBFloat16, 2), narrow = work(at::kBFloat16, 1);
  EXPECT_EQ(wide.at("product, MLP in").flops, 2.0 * 32 * 32 * 128);
  EXPECT_EQ(wide.at("product, MLP in").bytes, 4.0 * (32 * 32 + 32 * 128 + 32 * 128));
  EXPECT_EQ(wide.at("product, MLP in, with backward").flops, 3 * 2.0 * 32 * 32 * 128);
  EXPECT_EQ(wide.at("product, MLP in, with backward").bytes, 3 * 4.0 * (32 * 32 + 32 * 128 + 32 * 128));
  EXPECT_EQ(wide.at("attention").flops, 2 * 2 * 2.0 * 16 * 16 * 32 / 2);
  EXPECT_EQ(wide.at("GELU").bytes, 2 * 4.0 * 32 * 128);
  EXPECT_EQ(mixed.at("GELU").bytes, 2 * 2.0 * 32 * 128);
  EXPECT_EQ(wide.at("head and cross entropy").flops, 2.0 * 32 * 32 * 128) << "70 are padded to 128";
  EXPECT_EQ(wide.at("batch of tokens").bytes, 2 * 17 * 4 + 2 * 32 * 8);
  const double parameters = wide.at("AdamW").bytes / 28;
  EXPECT_EQ(mixed.at("AdamW").bytes, 30 * parameters);
  EXPECT_EQ(narrow.at("AdamW").bytes, 28 * parameters) << "gradients of 16 bits";
  EXPECT_EQ(narrow.at("norm of the gradients").bytes, 2 * parameters);
  EXPECT_EQ(narrow.at("embedding, with backward").bytes, 32 * 32 * (3 * 2 + 2 * 2));
  EXPECT_EQ(mixed.at("embedding, with backward").bytes, 32 * 32 * (3 * 2 + 2 * 4));
  EXPECT_EQ(mixed.at("RoPE and the split into heads").bytes, 2 * 2.0 * 32 * 2 * 32) << "queries and keys";
  EXPECT_EQ(mixed.at("RoPE and the split into heads, with backward").bytes, 2.0 * 32 * 32 * (2 * 2 + 2 * 3));
}

TEST(OperatorFindings, SayHowCloseEachIsToWhatTheMachineCanDo) {
  const OperatorSpeeds speeds{
      .speed = {.flops = 1e12, .bytes_per_second = 1e9},
      .rows = {{.name = "computes", .ours_ms = 4, .libtorch_ms = 4, .work = {.flops = 1e9, .bytes = 1e5}},
               {.name = "moves", .ours_ms = 4, .libtorch_ms = 4, .work = {.flops = 0, .bytes = 3e6}}}};
  const std::string text = unpadded(findings(speeds).text);
  EXPECT_NE(text.find("| 250.00 GFLOP/s | 25 % |"), std::string::npos) << text;
  EXPECT_NE(text.find("| 750 MB/s | 75 % |"), std::string::npos) << text;
  EXPECT_NE(text.find("a large product (1.00 TFLOP/s) and of a large copy (1.00 GB/s)"), std::string::npos) << text;
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
