// A few parameters and their gradients for the tests of AdamW, on every device and under emulation.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <optional>

#include "gpt/optim/adamw.h"
#include "support/device_cases.h"
#include "support/emulated_kernels.h"

namespace gpt::optim {

inline constexpr OptimizerConfig kConfig{.weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};

// Wherever they are: moments may be on the host.
inline void expect_same_bits(const parameters::NamedTensors& a, const parameters::NamedTensors& b) {
  const auto bytes_of = [](const at::Tensor& x) { return x.detach().cpu().view(at::kByte); };
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(bytes_of(a[i].second).equal(bytes_of(b[i].second))) << a[i].first;
}

inline parameters::NamedTensors clone(const parameters::NamedTensors& tensors) {
  parameters::NamedTensors result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(name, tensor.detach().clone());
  return result;
}

inline OptimizerState clone(const OptimizerState& state) {
  OptimizerState result{.slots = {}, .step_count = state.step_count.clone()};
  for (const auto& [name, tensors] : state.slots) result.slots.emplace_back(name, clone(tensors));
  return result;
}

inline void expect_same_bits(const OptimizerState& a, const OptimizerState& b) {
  ASSERT_EQ(a.slots.size(), b.slots.size());
  for (size_t i = 0; i < a.slots.size(); ++i) expect_same_bits(a.slots[i].second, b.slots[i].second);
  EXPECT_EQ(a.step_count.item<float>(), b.step_count.item<float>());
}

inline OptimizerConfig one_operator_at_a_time() {
  OptimizerConfig config = kConfig;
  config.fused_adamw = false;
  return config;
}

inline OptimizerConfig with_state(StateDtype dtype) {
  OptimizerConfig config = kConfig;
  config.state_dtype = dtype;
  return config;
}

class AdamWTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (GetParam().is_emulated) emulation_.emplace();
  }

  at::Tensor scalar(double value) const { return full({}, value); }

  // A matrix between two vectors, none of them a multiple of the alignment.
  parameters::Parameters make_parameters(const parameters::ParameterTypes& types = {}) {
    parameters::Parameters parameters({{.name = "first",
                                        .shape = {19},
                                        .role = layout::ParameterRole::attention_norm,
                                        .layer = 0,
                                        .is_bias = false,
                                        .initial = {}},
                                       {.name = "matrix",
                                        .shape = {13, 37},
                                        .role = layout::ParameterRole::attention_in,
                                        .layer = 0,
                                        .is_bias = false,
                                        .initial = {}},
                                       {.name = "last",
                                        .shape = {300},
                                        .role = layout::ParameterRole::attention_in,
                                        .layer = 0,
                                        .is_bias = true,
                                        .initial = {}}},
                                      device(), types);
    for (const auto& [name, value] : parameters.values()) value.detach().copy_(at::randn(value.sizes(), generator_));
    return parameters;
  }

  void draw_gradients(const parameters::Parameters& parameters) {
    parameters.clear_gradients();
    for (size_t i = 0; i < parameters.rows().size(); ++i) {
      parameters[i].add_to_gradient(at::randn(parameters.rows()[i].shape, generator_));
    }
  }

  UpdateScalars scalars(double learning_rate, double grad_scale = 1, double found_inf = 0, double decay_share = 1) {
    return {scalar(learning_rate), scalar(decay_share), scalar(grad_scale), scalar(found_inf)};
  }
  void step(AdamW& optimizer, double learning_rate, double grad_scale = 1, double found_inf = 0,
            double decay_share = 1) {
    optimizer.step(scalars(learning_rate, grad_scale, found_inf, decay_share));
  }

  at::Generator generator_ = at::detail::createCPUGenerator(1);

 private:
  std::optional<test::EmulatedKernels> emulation_;
};

}  // namespace gpt::optim
