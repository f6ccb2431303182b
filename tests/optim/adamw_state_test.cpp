// AdamW with moments of fewer bits: each update against the paper's in float64, from the state that the one before it left.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "gpt/ops/moments.h"
#include "optim/adamw_fixture.h"
#include "support/moment_map.h"
#include "support/tolerance.h"

namespace gpt::optim {
namespace {

using AdamWStateTest = AdamWTest;

std::vector<double> doubles(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().to(at::kDouble).contiguous().view(-1);
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

// A parameter's state as float64 values; codes are read with the published map.
struct Exact {
  std::vector<double> m, v;
  std::vector<double> m_code = {}, v_code = {}, m_max = {}, v_max = {};
};

Exact exact(const OptimizerState& state, size_t row) {
  Exact result{.m = doubles(state.slot("exp_avg")[row].second), .v = doubles(state.slot("exp_avg_sq")[row].second)};
  if (state.slot("exp_avg_max").empty()) return result;
  result.m_code = result.m, result.v_code = result.v;
  result.m_max = doubles(state.slot("exp_avg_max")[row].second);
  result.v_max = doubles(state.slot("exp_avg_sq_max")[row].second);
  static const std::vector<double> kFirst = test::moment_map(true), kSecond = test::moment_map(false);
  for (size_t i = 0; i < result.m.size(); ++i) {
    result.m[i] = kFirst[static_cast<size_t>(result.m_code[i])] * result.m_max[i / 256];
    result.v[i] = kSecond[static_cast<size_t>(result.v_code[i])] * result.v_max[i / 256];
  }
  return result;
}

// What an update makes of a value and its moments, and how far float32 may be from it. The lines that give a code its value
// have an error of 20 roundings (tests/ops/moments_test.cpp).
struct Update {
  double m, v, value, m_error, v_error, value_error;

  Update(double value_before, double m_before, double v_before, double g, int64_t t, double lr, double decay) {
    const double beta1 = kConfig.beta1, beta2 = kConfig.beta2, u = test::unit_roundoff(at::kFloat);
    m = beta1 * m_before + (1 - beta1) * g, v = beta2 * v_before + (1 - beta2) * g * g;
    m_error = 24 * u * (std::abs(m_before) + std::abs(g)), v_error = 28 * u * v;
    const double rate = lr / (1 - std::pow(beta1, t)), root = std::sqrt(v / (1 - std::pow(beta2, t))) + kConfig.eps;
    value = value_before * (1 - lr * decay) - rate * m / root;
    value_error = 2 * u * std::abs(value_before) + rate / root * (m_error + 24 * u * std::abs(m));
  }
};

// Draws gradients, updates, and calls check(row, i, update, state after) for every value.
template <class Check>
void follow(const parameters::Parameters& parameters, AdamW& optimizer, int64_t t, const std::function<void()>& work,
            const Check& check) {
  std::vector<Exact> before;
  std::vector<std::vector<double>> values, gradients;
  const OptimizerState state = clone(optimizer.state());
  for (size_t row = 0; row < parameters.rows().size(); ++row) {
    before.push_back(exact(state, row));
    values.push_back(doubles(parameters[row].value()));
    gradients.push_back(doubles(parameters[row].gradient()));
  }
  work();
  const OptimizerState after = optimizer.state();
  for (size_t row = 0; row < before.size(); ++row) {
    const Exact found = exact(after, row);
    const std::vector<double> moved = doubles(parameters[row].value());
    for (size_t i = 0; i < moved.size(); ++i) {
      const Update update(values[row][i], before[row].m[i], before[row].v[i], gradients[row][i] / 2.5, t,
                          0.1 / static_cast<double>(t), parameters.rows()[row].decays() ? kConfig.weight_decay : 0);
      ASSERT_NEAR(moved[i], update.value, update.value_error) << parameters.rows()[row].name << ' ' << i;
      check(found, i, update);
    }
  }
}

constexpr int64_t kSteps = 7;

TEST_P(AdamWStateTest, EightBitsHoldTheNearestCodes) {
  const std::vector<double> first = test::moment_map(true), second = test::moment_map(false);
  const parameters::Parameters parameters = make_parameters();
  AdamW optimizer(parameters, with_state(StateDtype::int8));
  for (int64_t t = 1; t <= kSteps; ++t) {
    draw_gradients(parameters);
    // Some of every magnitude, so that every decade of the map is in use.
    for (const auto& [name, gradient] : parameters.gradients()) gradient.mul_(gradient.abs().pow(4));
    follow(
        parameters, optimizer, t, [&] { step(optimizer, 0.1 / static_cast<double>(t), 2.5); },
        [&](const Exact& found, size_t i, const Update& update) {
          const double m_max = found.m_max[i / 256], v_max = found.v_max[i / 256];
          ASSERT_LE(std::abs(update.m), m_max + update.m_error);
          ASSERT_LE(update.v, v_max + update.v_error);
          // The block's maximum has an error of its own.
          const double m_part = update.m / m_max, v_part = update.v / v_max, u = test::unit_roundoff(at::kFloat);
          ASSERT_TRUE(test::is_nearest(first, static_cast<int>(found.m_code[i]), m_part,
                                       update.m_error / m_max + 2 * u * std::abs(m_part)))
              << found.m_code[i] << " for " << m_part;
          if (found.v_code[i] == 1 && update.v > 0 && v_part < second[1]) return;
          ASSERT_TRUE(test::is_nearest(second, static_cast<int>(found.v_code[i]), v_part,
                                       update.v_error / v_max + 2 * u * v_part))
              << found.v_code[i] << " for " << v_part;
        });
    if (HasFatalFailure()) return;
    // The maxima are those of the moments, to the bit: some value of each block is its largest.
    const OptimizerState state = optimizer.state();
    for (size_t row = 0; row < parameters.rows().size(); ++row) {
      const Exact found = exact(state, row);
      for (size_t block = 0; block < found.v_max.size(); ++block) {
        const auto begin = found.v_code.begin() + static_cast<int64_t>(256 * block),
                   end = found.v_code.begin() + static_cast<int64_t>(std::min(256 * (block + 1), found.v_code.size()));
        EXPECT_EQ(*std::max_element(begin, end), 255);
      }
    }
  }
}

TEST_P(AdamWStateTest, BFloat16RoundsTheFirstMomentToNearestAndTheSecondToANeighbour) {
  const parameters::Parameters parameters = make_parameters();
  AdamW optimizer(parameters, with_state(StateDtype::bfloat16));
  const double u = test::unit_roundoff(at::kBFloat16);
  for (int64_t t = 1; t <= kSteps; ++t) {
    draw_gradients(parameters);
    follow(
        parameters, optimizer, t, [&] { step(optimizer, 0.1 / static_cast<double>(t), 2.5); },
        [&](const Exact& found, size_t i, const Update& update) {
          ASSERT_NEAR(found.m[i], update.m, u * std::abs(update.m) + update.m_error);
          ASSERT_NEAR(found.v[i], update.v, 2 * u * update.v + update.v_error);
        });
    if (HasFatalFailure()) return;
  }
}

// To nearest, a second moment of 0.34 would stay: the next update adds 0.00066, and the next number is 0.00195 above it.
TEST_P(AdamWStateTest, BFloat16LosesNoSmallSteps) {
  constexpr int64_t kUpdates = 1500;
  OptimizerConfig config = with_state(StateDtype::bfloat16);
  config.beta2 = 0.999;
  const parameters::Parameters parameters = make_parameters();
  AdamW optimizer(parameters, config);
  draw_gradients(parameters);
  for (const auto& [name, gradient] : parameters.gradients()) gradient.fill_(1);
  for (int64_t t = 1; t <= kUpdates; ++t) step(optimizer, 1e-3);
  const at::Tensor v = optimizer.state().slot("exp_avg_sq")[1].second.cpu().to(at::kDouble).view(-1);
  const double expected = 1 - std::pow(config.beta2, kUpdates);
  // A rounding moves a value by at most 2^-8 and has a standard deviation of half of that at most, and 1 / (1 - 0.999^2) of them
  // are remembered; the values' are independent of each other.
  const double deviation = 0.5 * 0x1p-8 / std::sqrt(1 - config.beta2 * config.beta2);
  EXPECT_NEAR(v.mean().item<double>(), expected, 5 * deviation / std::sqrt(static_cast<double>(v.numel())));
  EXPECT_GT(v.std().item<double>(), 0.1 * deviation) << "each value has random bits of its own";
  EXPECT_LT(v.std().item<double>(), 2 * deviation);
}

TEST_P(AdamWStateTest, OfAnotherTypeIsConverted) {
  using enum StateDtype;
  for (const StateDtype before : {float32, bfloat16, int8}) {
    const parameters::Parameters parameters = make_parameters();
    AdamW optimizer(parameters, with_state(before));
    for (int i = 0; i < 3; ++i) draw_gradients(parameters), step(optimizer, 0.1);
    const OptimizerState from = clone(optimizer.state());
    for (const StateDtype after : {float32, bfloat16, int8}) {
      AdamW other(parameters, with_state(after));
      other.load(from);
      const OptimizerState to = other.state();
      if (before == after) {
        expect_same_bits(to, from);
        continue;
      }
      EXPECT_EQ(to.step_count.item<float>(), 3);
      for (size_t row = 0; row < parameters.rows().size(); ++row) {
        const Exact a = exact(from, row), b = exact(to, row);
        // A code is within half of the widest gap of the map: of 0.9/64 or, without a sign, 0.9/128 of the largest.
        const bool is_coded = after == int8;
        for (size_t i = 0; i < a.m.size(); ++i) {
          const double u = test::unit_roundoff(after == bfloat16 ? at::kBFloat16 : at::kFloat);
          EXPECT_NEAR(b.m[i], a.m[i],
                      is_coded ? 0.0071 * b.m_max[i / 256] : 2 * u * std::abs(a.m[i]) + 1e-6 * std::abs(a.m[i]));
          EXPECT_NEAR(b.v[i], a.v[i], is_coded ? 0.0036 * b.v_max[i / 256] : 2 * u * a.v[i] + 1e-6 * a.v[i]);
        }
      }
    }
  }
}

// Moments that shrink: what pads the last block of a parameter, which no checkpoint has, must not become its largest value.
TEST_P(AdamWStateTest, GoesOnToTheBitWhereMomentsShrink) {
  for (const StateDtype dtype : {StateDtype::bfloat16, StateDtype::int8}) {
    const parameters::Parameters parameters = make_parameters();
    AdamW whole(parameters, with_state(dtype));
    for (int i = 0; i < 3; ++i) draw_gradients(parameters), step(whole, 0.01);
    const OptimizerState saved = clone(whole.state());
    const parameters::NamedTensors values = clone(parameters.values());
    const auto shrink = [&](AdamW& optimizer) {
      for (int i = 0; i < 3; ++i) {
        parameters.clear_gradients();
        for (size_t row = 0; row < parameters.rows().size(); ++row) {
          std::vector<double> m = exact(optimizer.state(), row).m;
          const at::Tensor gradient = at::from_blob(m.data(), parameters.rows()[row].shape, at::kDouble) * -8.5;
          parameters[row].add_to_gradient(gradient.to(device(), at::kFloat));  // 0.05 m are left
        }
        step(optimizer, 0.01);
      }
    };
    shrink(whole);
    const OptimizerState expected = clone(whole.state());
    const parameters::NamedTensors expected_values = clone(parameters.values());
    for (size_t row = 0; row < values.size(); ++row) parameters[row].value().detach().copy_(values[row].second);
    AdamW resumed(parameters, with_state(dtype));
    resumed.load(saved);
    shrink(resumed);
    expect_same_bits(resumed.state(), expected);
    expect_same_bits(parameters.values(), expected_values);
  }
}

TEST_P(AdamWStateTest, EmbeddingsMayStayFloat32) {
  ModelConfig model;
  model.n_layer = 2, model.n_head = 2, model.n_embd = 16, model.block_size = 8, model.vocab_size = 40;
  model.position = Position::learned;
  const auto train = [&](const OptimizerConfig& config) {
    generator_ = at::detail::createCPUGenerator(2);
    parameters::Parameters parameters(layout::parameter_table(model), device());
    parameters.draw(1);
    AdamW optimizer(parameters, config);
    for (int i = 0; i < 3; ++i) draw_gradients(parameters), step(optimizer, 0.1);
    return std::pair(parameters, clone(optimizer.state()));
  };
  OptimizerConfig config = with_state(StateDtype::int8);
  const auto [all_in_codes, codes] = train(config);
  config.float32_embedding_state = true;
  const auto [mixed, state] = train(config);
  const auto [all_in_float32, float32] = train(kConfig);
  EXPECT_EQ(state.slot("exp_avg").size(), mixed.rows().size());
  EXPECT_EQ(state.slot("exp_avg_max").size(), mixed.rows().size() - 2);
  for (size_t row = 0; row < mixed.rows().size(); ++row) {
    const bool is_embedding = mixed.rows()[row].layer < 0;
    const auto& expected = is_embedding ? all_in_float32 : all_in_codes;
    EXPECT_TRUE(mixed[row].value().equal(expected[row].value())) << mixed.rows()[row].name;
    EXPECT_TRUE(state.slot("exp_avg")[row].second.equal((is_embedding ? float32 : codes).slot("exp_avg")[row].second));
  }
}

TEST_P(AdamWStateTest, OffloadingChangesNothingButThePlace) {
  // Rounding at random too: of moments in bfloat16, and of values that are bfloat16 alone.
  const auto expect_the_same = [&](StateDtype dtype, const parameters::ParameterTypes& types) {
    OptimizerConfig config = with_state(dtype);
    const auto train = [&] {
      generator_ = at::detail::createCPUGenerator(3);
      parameters::Parameters parameters = make_parameters(types);
      AdamW optimizer(parameters, config);
      for (int i = 0; i < 3; ++i) {
        draw_gradients(parameters), step(optimizer, 0.1);
        AdamW other(parameters, config);
        other.load(optimizer.state());
        optimizer = other;
      }
      return std::tuple(clone(parameters.values()), clone(optimizer.state()), optimizer.bytes());
    };
    const auto [values, state, all] = train();
    EXPECT_EQ(all.host, 0);
    for (const double share : {0.5, 1.0}) {
      config.offload = share;
      const auto [same_values, same_state, bytes] = train();
      expect_same_bits(same_values, values);
      expect_same_bits(same_state, state);
      EXPECT_EQ(bytes.device + bytes.host, all.device);
      EXPECT_GT(bytes.host, 0);
      EXPECT_EQ(bytes.device == 0, share == 1);
    }
  };
  for (const StateDtype dtype : {StateDtype::float32, StateDtype::bfloat16, StateDtype::int8}) {
    expect_the_same(dtype, {});
    expect_the_same(dtype, {.compute = at::kBFloat16, .has_master = false});
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AdamWStateTest, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpt::optim
