// The model and its training step against the plain PyTorch reference of scripts/make_fixtures.py, in the four forms.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "gpt/model/gpt.h"
#include "gpt/ops/flat_norm.h"
#include "gpt/ops/verdict.h"
#include "gpt/optim/adamw.h"
#include "gpt/optim/lr_schedule.h"
#include "support/device_cases.h"
#include "support/fixture.h"
#include "support/tolerance.h"

namespace gpt::model {
namespace {

class Parity : public testing::TestWithParam<std::tuple<DeviceCase, const char*>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(std::get<0>(GetParam()));
    model_ = std::make_unique<GPT>(config_, device_, fixture_.group("initial."));
  }

  at::Device device_ = std::get<0>(GetParam()).device;
  test::Fixture fixture_ = test::read_fixture(std::get<1>(GetParam()));
  ModelConfig config_ = fixture_.model_config();
  std::unique_ptr<GPT> model_;
  double smoothing_ = fixture_.number("label_smoothing");

  at::Tensor ids(int64_t step) const { return batch(step).narrow(1, 0, config_.block_size); }
  at::Tensor targets(int64_t step) const { return batch(step).narrow(1, 1, config_.block_size); }
  at::Tensor batch(int64_t step) const { return fixture_.tensors.at("batches")[step].to(device_); }

  // Roundings one after another from the ids to a logit: the sums of every layer, and the head's.
  int64_t forward_roundings() const {
    const int64_t C = config_.n_embd, T = config_.block_size;
    return config_.n_layer * (5 * C + config_.head_dim() + T + config_.hidden()) + 2 * C;
  }
  // Down again, and the sum over all tokens of a batch.
  int64_t backward_roundings() const { return 3 * forward_roundings() + fixture_.tensors.at("batches")[0].numel(); }
};

double max_abs(const at::Tensor& x) { return x.abs().max().item<double>(); }
double max_difference(const at::Tensor& x, const at::Tensor& reference) {
  return max_abs(x.detach().cpu().to(at::kDouble) - reference);
}

TEST_P(Parity, Logits) {
  const at::Tensor& expected = fixture_.tensors.at("logits");
  const at::Tensor logits = model_->forward(ids(0));
  ASSERT_EQ(logits.sizes(), expected.sizes());
  EXPECT_LE(max_difference(logits, expected), test::tolerance(at::kFloat, forward_roundings(), max_abs(expected)));
}

TEST_P(Parity, LossAndEveryGradient) {
  const at::Tensor loss = model_->loss(ids(0), targets(0), {.label_smoothing = smoothing_});
  const double expected = fixture_.tensors.at("losses")[0].item<double>();
  EXPECT_NEAR(loss.item<double>(), expected, test::tolerance(at::kFloat, forward_roundings(), expected));
  loss.backward();
  (void)model_->parameters().flat_gradients();  // throws where one is missing
  for (const auto& [name, gradient] : model_->parameters().gradients()) {
    const at::Tensor& expected = fixture_.tensors.at("gradient." + name);
    EXPECT_LE(max_difference(gradient, expected), test::tolerance(at::kFloat, backward_roundings(), max_abs(expected)))
        << name;
  }
}

TEST_P(Parity, TenAdamWSteps) {
  ScheduleConfig training;
  training.learning_rate = fixture_.number("learning_rate");
  training.min_lr = fixture_.number("min_lr");
  training.warmup_steps = fixture_.integer("warmup_steps");
  optim::AdamW optimizer(model_->parameters(), {.weight_decay = fixture_.number("weight_decay"),
                                                .beta1 = fixture_.number("beta1"),
                                                .beta2 = fixture_.number("beta2"),
                                                .eps = fixture_.number("eps")});
  const int64_t steps = fixture_.integer("max_steps");
  const ops::Verdict verdict = ops::new_verdict(device_);
  const ops::UpdateCounts counts = ops::no_updates(device_);
  for (int64_t step = 0; step < steps; ++step) {
    model_->parameters().clear_gradients();
    const at::Tensor loss = model_->loss(ids(step), targets(step), {.label_smoothing = smoothing_});
    loss.backward();
    const at::Tensor norm = ops::flat_norm(model_->parameters().flat_gradients());
    ops::judge({loss.detach(), norm, {}}, fixture_.number("gradient_clip"), verdict, counts);
    const auto options = at::TensorOptions(device_).dtype(at::kFloat);
    optimizer.step({at::full({}, optim::learning_rate_at(training, step, steps), options), at::ones({}, options),
                    verdict.divisor, verdict.skipped});
    const double expected = fixture_.tensors.at("losses")[step].item<double>();
    EXPECT_NEAR(loss.item<double>(), expected,
                test::tolerance(at::kFloat, (step + 1) * backward_roundings(), expected));
  }
  for (const auto& [name, parameter] : model_->parameters().values()) {
    const at::Tensor& expected = fixture_.tensors.at("final." + name);
    EXPECT_LE(max_difference(parameter, expected),
              test::tolerance(at::kFloat, steps * backward_roundings(), max_abs(expected)))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Parity,
                         testing::Combine(testing::ValuesIn(kDevices),
                                          testing::Values("gpt2_form", "llama_form", "qwen3_form", "gemma3_form",
                                                          "olmo2_form", "arcee_form", "default_form")),
                         [](const auto& test) {
                           return std::string(std::get<1>(test.param)) + "_" + std::get<0>(test.param).name;
                         });

}  // namespace
}  // namespace gpt::model
