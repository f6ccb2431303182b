// Averages of the weights against a replay in float64 of the values that each update has left.
#include "gpt/optim/averaged_optimizer.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gpt/optim/make_optimizer.h"
#include "optim/adamw_fixture.h"
#include "support/captured_log.h"
#include "support/tolerance.h"

namespace gpt::optim {
namespace {

constexpr double kDecay = 0.75;

OptimizerConfig averaged(OptimizerConfig config) {
  config.ema_decay = kDecay;
  config.average_after = 0.25;
  return config;
}

class AveragedOptimizerTest : public AdamWTest {
 protected:
  // With matrices that Muon updates.
  parameters::Parameters make_model() {
    ModelConfig model;
    model.n_layer = 1, model.n_head = 2, model.n_embd = 20, model.block_size = 8, model.vocab_size = 30;
    parameters::Parameters parameters(layout::parameter_table(model), device());
    for (const auto& [name, value] : parameters.values()) value.detach().copy_(at::randn(value.sizes(), generator_));
    return parameters;
  }
  std::unique_ptr<Optimizer> make(const parameters::Parameters& parameters, const OptimizerConfig& config) {
    return make_optimizer(parameters, config, {{0, parameters.layout().trained_size}});
  }
  void move(Optimizer& optimizer, const parameters::Parameters& parameters, double found_inf = 0) {
    draw_gradients(parameters);
    optimizer.step(scalars(0.1, 2.5, found_inf));
  }
};

std::vector<at::Tensor> exact_values(const parameters::Parameters& parameters) {
  std::vector<at::Tensor> values;
  for (const auto& [name, value] : parameters.values()) values.push_back(test::exact(value));
  return values;
}

parameters::NamedTensors averages_in(const Optimizer& optimizer) { return optimizer.state().slot(kAverageSlot); }

TEST_P(AveragedOptimizerTest, IsTheReplayOfTheValuesOfEachUpdate) {
  constexpr int64_t kUpdates = 12;
  OptimizerConfig muon = kConfig;
  muon.kind = OptimizerKind::normuon;
  for (const OptimizerConfig& config : {averaged(kConfig), averaged(with_state(StateDtype::int8)), averaged(muon)}) {
    const parameters::Parameters parameters = config.has_muon() ? make_model() : make_parameters();
    const auto optimizer = make(parameters, config);
    std::vector<at::Tensor> replay = exact_values(parameters);
    double largest = 0;
    for (int64_t update = 0; update < kUpdates; ++update) {
      averages_of(*optimizer)->set_progress(static_cast<double>(update) / kUpdates);
      move(*optimizer, parameters);
      const std::vector<at::Tensor> values = exact_values(parameters);
      const bool begins = 4 * update <= kUpdates;
      for (size_t i = 0; i < replay.size(); ++i) {
        replay[i] = begins ? values[i] : kDecay * replay[i] + (1 - kDecay) * values[i];
        largest = std::max(largest, values[i].abs().max().item<double>());
      }
      const parameters::NamedTensors averages = averages_in(*optimizer);
      ASSERT_EQ(averages.size(), replay.size());
      // An update rounds a difference and a sum; what came before counts for kDecay of what it was.
      const double bound = begins ? 0 : 4 * test::unit_roundoff(at::kFloat) * largest / (1 - kDecay);
      for (size_t i = 0; i < replay.size(); ++i) {
        EXPECT_EQ(averages[i].second.scalar_type(), at::kFloat);
        EXPECT_LE((test::exact(averages[i].second) - replay[i]).abs().max().item<double>(), bound)
            << averages[i].first << " after update " << update;
      }
    }
  }
}

TEST_P(AveragedOptimizerTest, ChangesNeitherWeightsNorMoments) {
  for (const StateDtype dtype : {StateDtype::float32, StateDtype::int8}) {
    parameters::Parameters with = make_parameters(), without = make_parameters();
    without.copy_from(with.values());
    const auto averaging = make(with, averaged(with_state(dtype))), plain = make(without, with_state(dtype));
    for (int64_t update = 0; update < 3; ++update) {
      averages_of(*averaging)->set_progress(update / 3.0);
      move(*averaging, with);
      without.clear_gradients();
      for (size_t i = 0; i < with.rows().size(); ++i) without[i].add_to_gradient(with[i].gradient());
      plain->step(scalars(0.1, 2.5));
    }
    expect_same_bits(with.values(), without.values());
    OptimizerState state = averaging->state();
    ASSERT_EQ(state.slots.back().first, kAverageSlot);
    state.slots.pop_back();
    expect_same_bits(state, plain->state());
    EXPECT_EQ(averages_of(*plain), nullptr);
  }
}

TEST_P(AveragedOptimizerTest, ASkippedUpdateLeavesThem) {
  const parameters::Parameters parameters = make_parameters();
  const auto optimizer = make(parameters, averaged(kConfig));
  for (const double progress : {0.0, 0.5, 0.9}) {
    averages_of(*optimizer)->set_progress(progress);
    move(*optimizer, parameters);
    const parameters::NamedTensors before = clone(averages_in(*optimizer));
    move(*optimizer, parameters, /*found_inf=*/1);
    expect_same_bits(averages_in(*optimizer), before);
  }
}

// A trial of updates that learn nothing says no progress.
TEST_P(AveragedOptimizerTest, StaysUntilTheProgressIsKnown) {
  const parameters::Parameters parameters = make_parameters();
  const auto optimizer = make(parameters, averaged(kConfig));
  const parameters::NamedTensors begun = clone(averages_in(*optimizer));
  expect_same_bits(begun, parameters.values());
  move(*optimizer, parameters);
  expect_same_bits(averages_in(*optimizer), begun);
}

TEST_P(AveragedOptimizerTest, ChangesPlacesWithTheValuesAndBack) {
  const parameters::Parameters parameters = make_parameters();
  const auto optimizer = make(parameters, averaged(kConfig));
  for (int64_t update = 0; update < 4; ++update) {
    averages_of(*optimizer)->set_progress(update / 4.0);
    move(*optimizer, parameters);
  }
  const parameters::NamedTensors values = clone(parameters.values()), averages = clone(averages_in(*optimizer));
  averages_of(*optimizer)->swap();
  expect_same_bits(parameters.values(), averages);
  expect_same_bits(averages_in(*optimizer), values);
  averages_of(*optimizer)->swap();
  expect_same_bits(parameters.values(), values);
  expect_same_bits(averages_in(*optimizer), averages);
}

TEST_P(AveragedOptimizerTest, GoesOnFromItsState) {
  const parameters::Parameters one = make_parameters(), other = make_parameters();
  const auto saved = make(one, averaged(with_state(StateDtype::int8)));
  for (int64_t update = 0; update < 4; ++update) {
    averages_of(*saved)->set_progress(update / 4.0);
    move(*saved, one);
  }
  const auto loaded = make(other, averaged(with_state(StateDtype::int8)));
  test::CapturedLog log;
  loaded->load(clone(saved->state()));
  expect_same_bits(loaded->state(), saved->state());
  EXPECT_EQ(log.text(), "");
}

TEST_P(AveragedOptimizerTest, BeginsWithTheWeightsOfAStateThatHasNone) {
  const parameters::Parameters parameters = make_parameters();
  const auto plain = make(parameters, kConfig);
  move(*plain, parameters);
  const auto of_these = make(parameters, averaged(kConfig));
  parameters[0].value().detach().add_(1);  // as weights are read before the state
  test::CapturedLog log;
  of_these->load(clone(plain->state()));
  expect_same_bits(averages_in(*of_these), parameters.values());
  EXPECT_EQ(log.text(), "The checkpoint has no averages of the weights: they begin with its weights\n");
}

TEST_P(AveragedOptimizerTest, AreDroppedWhereNobodyWantsThem) {
  const parameters::Parameters parameters = make_parameters();
  const auto averaging = make(parameters, averaged(kConfig)), plain = make(parameters, kConfig);
  move(*averaging, parameters);
  test::CapturedLog log;
  plain->load(clone(averaging->state()));
  EXPECT_TRUE(plain->state().slot(kAverageSlot).empty());
  expect_same_bits(plain->state().slot("exp_avg"), averaging->state().slot("exp_avg"));
  EXPECT_EQ(log.text(), "The averages of the weights in the checkpoint are dropped, because training.ema_decay is 0\n");
}

// In float32, of weights that are kept in 16 bits alone.
TEST_P(AveragedOptimizerTest, AreOfFloat32WhereWeightsAreNot) {
  const parameters::Parameters parameters = make_parameters({.compute = at::kBFloat16, .has_master = false});
  const auto optimizer = make(parameters, averaged(kConfig));
  std::vector<at::Tensor> replay = exact_values(parameters);
  for (int64_t update = 0; update < 6; ++update) {
    averages_of(*optimizer)->set_progress(1);
    move(*optimizer, parameters);
    const std::vector<at::Tensor> values = exact_values(parameters);
    for (size_t i = 0; i < replay.size(); ++i) replay[i] = kDecay * replay[i] + (1 - kDecay) * values[i];
  }
  const parameters::NamedTensors averages = averages_in(*optimizer);
  for (size_t i = 0; i < replay.size(); ++i)
    EXPECT_LE((test::exact(averages[i].second) - replay[i]).abs().max().item<double>(),
              4 * test::unit_roundoff(at::kFloat) * replay[i].abs().max().item<double>() / (1 - kDecay));
  EXPECT_ANY_THROW(averages_of(*optimizer)->swap());
}

// Beside moments in the memory of the host.
TEST_P(AveragedOptimizerTest, StayOnTheDevice) {
  OptimizerConfig config = averaged(kConfig);
  config.offload = 1;
  const parameters::Parameters parameters = make_parameters();
  const int64_t size = parameters.layout().trained_size;
  for (const StateBytes& bytes :
       {make(parameters, config)->bytes(), state_bytes(parameters.rows(), parameters.layout(), config)}) {
    EXPECT_EQ(bytes.device, 4 * size);
    EXPECT_EQ(bytes.host, 8 * size);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AveragedOptimizerTest, testing::ValuesIn(kDevicesAndEmulation),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpt::optim
