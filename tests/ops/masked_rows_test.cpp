// Rows that are not learned from: what kernels make of them, a batch that has no others, and LibTorch's operators.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/ops/classifier.h"
#include "gpt/ops/operator_sets.h"
#include "src/ops/kernels.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"

namespace gpt::ops {
namespace {

class MaskedRows : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (GetParam().is_emulated) emulated_.emplace();
  }
  at::Tensor tokens(const std::vector<int64_t>& of) const { return at::tensor(of, at::kLong).to(device()); }
  at::Tensor one() const { return full({}, 1); }
  std::optional<test::EmulatedKernels> emulated_;
};

// Which a GPU's classifier leaves to its kernels, and a CPU's does not ask them about.
TEST_P(MaskedRows, KernelsClearMaskedRowsAlone) {
  for (const auto& [V, Vp] : {std::pair<int64_t, int64_t>(65, 128), {77, 83}, {3, 8}}) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    const at::Tensor logits = at::randn({4, Vp}, generator).to(device()), teacher = logits * 0.5,
                     scale = full({}, 0.25);
    for (const bool has_teacher : {false, true}) {
      ClassifierOptions options{V, 0.1};
      options.teacher.weight = 0.5;
      const auto run = [&](const std::vector<int64_t>& targets) {
        const at::Tensor of_logits = logits.clone(), losses = full({4}, 7);
        const DeviceKernels kernels = kernels_of(logits);
        has_teacher ? kernels->distillation(options, of_logits, teacher, tokens(targets), losses, scale)
                    : kernels->cross_entropy(options, of_logits, tokens(targets), losses, scale);
        return std::pair(losses, of_logits);
      };
      const auto [losses, gradients] = run({1, kMaskedTarget, 2, kMaskedTarget});
      const auto [all_losses, all_gradients] = run({1, 0, 2, 0});
      for (const int64_t row : {0, 2}) {
        EXPECT_TRUE(losses[row].equal(all_losses[row]));
        EXPECT_TRUE(gradients[row].equal(all_gradients[row]));
      }
      for (const int64_t row : {1, 3}) {
        EXPECT_EQ(losses[row].item<double>(), 0);
        EXPECT_EQ(gradients[row].abs().max().item<double>(), 0);
      }
    }
  }
}

// The memory has what an update before has left there.
TEST_P(MaskedRows, ABatchOfMaskedRowsGivesZerosForGradients) {
  const at::Tensor x = full({3, 4}, 1).requires_grad_();
  const parameters::Parameter head(full({8, 4}, 0.5));
  head.gradient().fill_(std::nan(""));
  const at::Tensor loss = classifier_loss(x, head, tokens({-1, -1, -1}), {5}, one());
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(x.grad().abs().max().item<double>(), 0);
  EXPECT_EQ(head.gradient().abs().max().item<double>(), 0);
  EXPECT_TRUE(head.has_gradient());
}

INSTANTIATE_TEST_SUITE_P(Devices, MaskedRows, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

// Masked rows are left out there by hand; where there are none, not a bit may change.
TEST(ClassifierOfLibTorch, GivesTheBitsOfItsCrossEntropy) {
  const at::Tensor x = at::randn({37, 8}).requires_grad_(), targets = at::randint(0, 19, {37}, at::kLong),
                   weight = at::randn({24, 8});
  for (const double smoothing : {0.0, 0.1}) {
    const parameters::Parameter ours(weight.clone()), theirs(weight.clone());
    aten_operators()->classifier_loss(x, ours, targets, {19, smoothing}, {}).backward();
    const at::Tensor of_ours = x.grad().clone();
    x.mutable_grad().reset();
    const at::Tensor logits = at::linear(x, theirs.tracked()).narrow(1, 0, 19);
    const at::Tensor loss = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Mean, -100, smoothing);
    loss.backward();
    EXPECT_TRUE(loss.equal(aten_operators()->classifier_loss(x, ours, targets, {19, smoothing}, {})));
    EXPECT_TRUE(of_ours.equal(x.grad()));
    EXPECT_TRUE(ours.gradient().equal(theirs.gradient()));
    EXPECT_TRUE(aten_operators()
                    ->classifier_losses(x, ours, targets, {19, smoothing})
                    .equal(at::cross_entropy_loss(logits, targets, {}, at::Reduction::None, -100, smoothing)));
    x.mutable_grad().reset();
  }
}

}  // namespace
}  // namespace gpt::ops
