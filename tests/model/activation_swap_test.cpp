// What blocks keep for their backward pass comes back from the host's memory as it was, in time, and is not on the device meanwhile. On a CPU
// support/late_copies.h stands for the host's memory and the stream.
#include "gpt/model/activation_swap.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpt/model/gpt.h"
#include "gpt/ops/operator_sets.h"
#include "support/device_cases.h"
#include "support/late_copies.h"
#include "support/model_forms.h"

namespace gpt::model {
namespace {

struct Result {
  double loss = 0;
  std::vector<at::Tensor> gradients;
};

class ActivationSwapTest : public testing::TestWithParam<std::tuple<DeviceCase, test::ModelForm>> {
 protected:
  void SetUp() override { GPT_SKIP_WITHOUT(std::get<0>(GetParam())); }
  at::Device device() const { return std::get<0>(GetParam()).device; }

  ModelConfig config() const {
    ModelConfig config = test::config_of(std::get<1>(GetParam()));
    config.n_layer = 4, config.block_size = 64;
    return config;
  }
  at::Tensor ids() const {
    return at::randint(101, {8, 65}, at::detail::createCPUGenerator(1), at::dtype(at::kLong)).to(device());
  }
  std::shared_ptr<device::HostCopies> copies() {
    if (!device().is_cpu()) return device::host_copies(device());
    return late_ = std::make_shared<test::LateCopies>();
  }

  // The result of two passes, the second of which uses the buffers of the first.
  Result result(GradientCheckpointing level, std::shared_ptr<ActivationSwap> swap) const {
    GPT model(config(), device(), 1);
    model.set_operators(ops::fused_operators());
    model.set_gradient_checkpointing(level);
    model.set_activation_swap(std::move(swap));
    model.train(true);
    Result result;
    for (int64_t pass = 0; pass < 2; ++pass) {
      const at::Tensor text = ids();
      LossOptions options;
      if (late_) options.layer_done = [this](int64_t layer) { late_->say("passed " + std::to_string(layer)); };
      const at::Tensor loss = model.loss(text.narrow(1, 0, 64), text.narrow(1, 1, 64), options);
      loss.backward();
      result.loss += loss.item<double>();
    }
    result.gradients = {model.parameters().flat_gradients().clone()};
    return result;
  }

  std::shared_ptr<test::LateCopies> late_;
};

TEST_P(ActivationSwapTest, GradientsKeepTheirBits) {
  for (const auto level : {GradientCheckpointing::none, GradientCheckpointing::norm, GradientCheckpointing::selective,
                           GradientCheckpointing::block}) {
    late_.reset();
    const Result whole = result(level, nullptr);
    for (const int64_t layers :
         level == GradientCheckpointing::none ? std::vector<int64_t>{1, 4} : std::vector<int64_t>{3}) {
      const auto swap = std::make_shared<ActivationSwap>(layers, copies());
      const Result swapped = result(level, swap);
      EXPECT_EQ(swapped.loss, whole.loss);
      for (size_t i = 0; i < whole.gradients.size(); ++i)
        EXPECT_TRUE(swapped.gradients[i].equal(whole.gradients[i])) << "in " << layers;
      EXPECT_GT(swap->host_bytes(), layers * 8 * 64 * 64 * 4 - 1) << "the stream alone of each";
      if (!late_) continue;
      EXPECT_EQ(late_->out, 2 * swap->host_bytes());
      EXPECT_EQ(late_->in, late_->out);
    }
  }
}

TEST_P(ActivationSwapTest, ABlockComesBackWhileTheOneBehindIsPassed) {
  if (!device().is_cpu()) GTEST_SKIP() << "a GPU does not say when copies begin";
  (void)result(GradientCheckpointing::none, std::make_shared<ActivationSwap>(3, copies()));
  const std::vector<std::string> pass = {"out",   "in", "passed 4", "await", "in",       "passed 3",
                                         "await", "in", "passed 2", "await", "passed 1", "passed 0"};
  std::vector<std::string> both = pass;
  both.insert(both.end(), pass.begin(), pass.end());
  EXPECT_EQ(late_->said, both);
}

TEST_P(ActivationSwapTest, NothingStaysOnTheDeviceMeanwhile) {
  if (!device().is_cpu()) GTEST_SKIP() << "the copies there are not counted";
  GPT model(config(), device(), 1);
  model.set_operators(ops::fused_operators());
  model.set_activation_swap(std::make_shared<ActivationSwap>(3, copies()));
  model.train(true);
  const at::Tensor text = ids(), loss = model.loss(text.narrow(1, 0, 64), text.narrow(1, 1, 64), {});
  ASSERT_GT(late_->left.size(), 9u);
  for (size_t i = 0; i < late_->left.size(); ++i) EXPECT_TRUE(late_->left[i].expired()) << i;
}

TEST_P(ActivationSwapTest, APassWithoutGradientsKeepsNothing) {
  if (!device().is_cpu()) GTEST_SKIP() << "the copies there are not counted";
  GPT model(config(), device(), 1);
  model.set_activation_swap(std::make_shared<ActivationSwap>(3, copies()));
  const at::NoGradGuard no_gradients;
  (void)model.forward(ids().narrow(1, 0, 64));
  EXPECT_TRUE(late_->said.empty());
}

// Which have no backward pass, and nothing of theirs is swapped.
TEST(ActivationSwap, GoesPastBlocksBeforeAllThatAreTrained) {
  ModelConfig config = test::config_of(test::divisible_forms()[0]);
  config.n_layer = 4;
  const auto gradients = [&config](std::shared_ptr<ActivationSwap> swap) {
    GPT model(config, at::kCPU, 1, {}, {.freeze = {"wte", "h.0-1"}});
    model.set_activation_swap(std::move(swap));
    const at::Tensor ids = at::randint(101, {8, 33}, at::detail::createCPUGenerator(1), at::dtype(at::kLong));
    model.loss(ids.narrow(1, 0, 32), ids.narrow(1, 1, 32)).backward();
    return model.parameters().flat_gradients().clone();
  };
  const auto copies = std::make_shared<test::LateCopies>();
  EXPECT_TRUE(gradients(std::make_shared<ActivationSwap>(3, copies)).equal(gradients(nullptr)));
  EXPECT_EQ(copies->said, (std::vector<std::string>{"out", "in", "await"}));
}

INSTANTIATE_TEST_SUITE_P(All, ActivationSwapTest, testing::Combine(testing::ValuesIn(kDevices), test::model_forms()),
                         index_and_device);

}  // namespace
}  // namespace gpt::model
