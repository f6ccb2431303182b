#include "gpt/parameters/parameters.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/device/precision.h"
#include "gpt/layout/layer_ends.h"
#include "support/device_cases.h"

namespace gpt::parameters {
namespace {

ModelConfig small_model() {
  ModelConfig config;
  config.n_layer = 2, config.n_head = 2, config.n_embd = 6, config.block_size = 4, config.vocab_size = 5,
  config.vocab_multiple = 4;
  config.norm = Norm::layernorm, config.bias = true, config.position = Position::learned;
  return config;
}

class ParametersTest : public DeviceTest {};

TEST_P(ParametersTest, ViewsShareTheFlatBuffer) {
  Parameters parameters(layout::parameter_table(small_model()), device());
  parameters.draw(1);
  EXPECT_EQ(parameters.flat_values().numel() % layout::kParameterAlignment, 0);
  const NamedTensors values = parameters.values();
  for (size_t i = 0; i < values.size(); ++i) {
    const at::Tensor part =
        parameters.flat_values().detach().narrow(0, parameters.layout().offsets[i], values[i].second.numel());
    EXPECT_EQ(parameters.layout().offsets[i] % layout::kParameterAlignment, 0) << values[i].first;
    EXPECT_TRUE(values[i].second.is_leaf() && values[i].second.requires_grad() && !values[i].second.is_view())
        << values[i].first;
    part.fill_(static_cast<double>(i));
    EXPECT_TRUE(values[i].second.detach().eq(static_cast<double>(i)).all().item<bool>()) << values[i].first;
  }
}

TEST_P(ParametersTest, TheFirstContributionOverwritesAndLaterOnesAdd) {
  Parameters parameters(layout::parameter_table(small_model()), device());
  parameters.draw(1);
  const Parameter norm = parameters.weight(layout::ParameterRole::final_norm, 2),
                  bias = parameters.bias(layout::ParameterRole::final_norm, 2);
  for (int update = 0; update < 2; ++update) {
    parameters.clear_gradients();
    EXPECT_FALSE(norm.has_gradient());
    for (int micro_batch = 1; micro_batch <= 3; ++micro_batch) {
      const at::Tensor x = at::full({4, 6}, 2.0, device());
      ((x * norm.tracked()).sum() + norm.tracked().sum() + bias.tracked().sum()).backward();
      EXPECT_TRUE(norm.gradient().eq(9 * micro_batch).all().item<bool>()) << micro_batch;
      EXPECT_TRUE(bias.gradient().eq(micro_batch).all().item<bool>()) << micro_batch;
    }
    EXPECT_FALSE(norm.value().grad().defined()) << "autograd holds no gradient of its own";
  }
}

TEST_P(ParametersTest, RoundedCopiesFollowTheValues) {
  Parameters parameters(layout::parameter_table(small_model()), device(), {.compute = at::kBFloat16});
  const auto expect_rounded = [&] {
    for (size_t i = 0; i < parameters.rows().size(); ++i) {
      const Parameter& parameter = parameters[i];
      EXPECT_EQ(parameter.compute_value().scalar_type(), at::kBFloat16);
      EXPECT_TRUE(parameter.compute_value().equal(parameter.value().to(at::kBFloat16))) << parameters.rows()[i].name;
    }
  };
  parameters.draw(1);
  expect_rounded();
  Parameters others(layout::parameter_table(small_model()), device());
  others.draw(2);
  EXPECT_TRUE(others[0].compute_value().is_same(others[0].value()));
  parameters.copy_from(others.values());
  expect_rounded();
  parameters.flat_values().detach().mul_(3);
  parameters.round_values();
  expect_rounded();
}

// As `values`, each in memory of its own, at whose end it is called with the name.
NamedTensors noted(const NamedTensors& values, const std::function<void(const std::string&)>& end) {
  NamedTensors own;
  for (const auto& [name, value] : values) {
    const at::Tensor kept = value.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    own.emplace_back(
        name, at::from_blob(kept.data_ptr(), kept.sizes(), [kept, name, end](void*) { end(name); }, kept.options()));
  }
  return own;
}

TEST_P(ParametersTest, GivesUpEachOfTheTensorsThatItWasGivenAsItIsCopied) {
  Parameters parameters(layout::parameter_table(small_model()), device()),
      others(layout::parameter_table(small_model()), device());
  others.draw(2);
  others.flat_values().detach().add_(1);  // norms too begin otherwise
  const size_t last = parameters.rows().size() - 1;
  const auto is_all_copied = [&] { return parameters[last].value().equal(others[last].value()); };
  std::vector<std::string> ended, early;
  NamedTensors values = noted(others.values(), [&](const std::string& name) {
    ended.push_back(name);
    if (!is_all_copied()) early.push_back(name);
  });
  parameters.copy_from(values);
  EXPECT_TRUE(ended.empty()) << "the caller has them";
  parameters.draw(1);
  parameters.copy_from(std::move(values));
  EXPECT_EQ(ended.size(), last + 1);
  EXPECT_EQ(early.size(), last) << "all but the last one, while there was more to copy";
  EXPECT_TRUE(is_all_copied());
}

TEST_P(ParametersTest, SixteenBitGradientsAddUpInFloat32) {
  Parameters parameters(layout::parameter_table(small_model()), device(), {.compute = at::kBFloat16});
  parameters.draw(1);
  const Parameter norm = parameters.weight(layout::ParameterRole::final_norm, 2);
  const at::Tensor tracked = norm.tracked();
  EXPECT_EQ(tracked.scalar_type(), at::kBFloat16);
  (tracked * 256).sum().backward();
  norm.tracked().sum().backward();
  EXPECT_TRUE(norm.gradient().eq(257).all().item<bool>()) << "257 is no bfloat16";
}

TEST_P(ParametersTest, AloneSixteenBitValuesAreTheRoundedOnes) {
  Parameters alone(layout::parameter_table(small_model()), device(), {.compute = at::kBFloat16, .has_master = false}),
      beside(layout::parameter_table(small_model()), device(), {.compute = at::kBFloat16});
  EXPECT_FALSE(alone.flat_rounded().defined());
  alone.draw(1);
  beside.draw(1);
  EXPECT_TRUE(alone.flat_values().equal(beside.flat_rounded())) << "padding too";
  beside.draw(2);
  alone.copy_from(beside.values());
  EXPECT_TRUE(alone.flat_values().equal(beside.flat_rounded()));
  EXPECT_TRUE(alone[0].compute_value().is_same(alone[0].value()));
}

TEST_P(ParametersTest, GradientsOfSixteenBitsRoundEverySum) {
  Parameters parameters(layout::parameter_table(small_model()), device(),
                        {.compute = at::kBFloat16, .gradient = at::kBFloat16});
  parameters.draw(1);
  const Parameter norm = parameters.weight(layout::ParameterRole::final_norm, 2);
  (norm.tracked() * 256).sum().backward();
  norm.tracked().sum().backward();
  EXPECT_EQ(norm.gradient().scalar_type(), at::kBFloat16);
  EXPECT_TRUE(norm.gradient().eq(256).all().item<bool>()) << "257 is no bfloat16";
  norm.clear_gradient();
  norm.add_to_gradient(full(norm.value().sizes(), 1 + 0x1p-7));
  EXPECT_TRUE(norm.gradient().eq(1 + 0x1p-7).all().item<bool>());
}

TEST_P(ParametersTest, TheFlatGradientsAreCompleteOrRefused) {
  Parameters parameters(layout::parameter_table(small_model()), device());
  parameters.draw(1);
  EXPECT_THROW((void)parameters.flat_gradients(), c10::Error);
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    EXPECT_THROW((void)parameters.flat_gradients(), c10::Error);
    parameters[i].add_to_gradient(full(parameters.rows()[i].shape, 1));
  }
  EXPECT_EQ(parameters.flat_gradients().sum().item<double>(), static_cast<double>(parameters.count()))
      << "padding is zero";
}

// Those of the last layer and the head, and all others.
std::vector<int64_t> two_segments(const Parameters& parameters) {
  return {layout::layer_ends(parameters.rows(), parameters.layout())[1], parameters.layout().trained_size};
}

TEST_P(ParametersTest, DividedGradientsAreThereUntilTheyAreTaken) {
  Parameters parameters(layout::parameter_table(small_model()), device());
  const std::vector<int64_t> ends = two_segments(parameters);
  parameters.divide_gradients(ends);
  EXPECT_THROW((void)parameters.gradient_buffer(0), c10::Error);
  for (const double value : {3.0, 5.0}) {
    for (size_t i = 0; i < parameters.rows().size(); ++i) {
      EXPECT_THROW((void)parameters.take_gradients(0), c10::Error) << "some are missing";
      parameters[i].add_to_gradient(full(parameters.rows()[i].shape, value));
    }
    parameters.weight(layout::ParameterRole::final_norm, 2).add_to_gradient(full({6}, value));
    int64_t begin = 0;
    double sum = 0;
    for (size_t segment = 0; segment < ends.size(); ++segment) {
      EXPECT_TRUE(parameters.has_gradients(segment));
      const at::Tensor gradients = parameters.take_gradients(segment);
      EXPECT_EQ(gradients.numel(), ends[segment] - std::exchange(begin, ends[segment]));
      EXPECT_FALSE(parameters.has_gradients(segment)) << "taken";
      EXPECT_TRUE(gradients.storage().use_count() == 1) << "nobody else holds the memory";
      sum += gradients.sum().item<double>();
    }
    EXPECT_EQ(sum, value * static_cast<double>(parameters.count() + 6))
        << "what was taken is not added to, padding is zero";
  }
}

TEST_P(ParametersTest, OfDividedGradientsAnUpdateFollowsFromTheirSums) {
  Parameters parameters(layout::parameter_table(small_model()), device());
  parameters.divide_gradients(two_segments(parameters));
  EXPECT_THROW((void)parameters.gradients_of({0, 256}), c10::Error);
  parameters.set_gradient_sums({{{0, 256}, full({256}, 1)}, {{512, 1024}, full({512}, 2)}});
  EXPECT_TRUE(parameters.gradients_of({0, 256}).equal(full({256}, 1)));
  EXPECT_TRUE(parameters.gradients_of({768, 1024}).equal(full({256}, 2)));
  EXPECT_THROW((void)parameters.gradients_of({256, 768}), c10::Error) << "another process has the first half";
}

INSTANTIATE_ON_DEVICES(ParametersTest);

}  // namespace
}  // namespace gpt::parameters
