// Muon against the formulas in float64: each update from the values and the state that the one before it left.
#include "gpt/optim/muon.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "gpt/core/error.h"
#include "gpt/optim/newton_schulz.h"
#include "optim/adamw_fixture.h"
#include "optim/newton_schulz_reference.h"
#include "support/moment_map.h"

namespace gpt::optim {
namespace {

// Fused query, key and value of two widths, gated and plain matrices, tall and wide; none has a multiple of 256 values.
ModelConfig llama() {
  ModelConfig model;
  model.n_layer = 2, model.n_head = 4, model.n_kv_head = 2, model.n_embd = 20, model.n_hidden = 50;
  model.block_size = 8, model.vocab_size = 30, model.vocab_multiple = 1;
  model.mlp = Mlp::swiglu, model.bias = false, model.tie_weights = false;
  return model;
}

ModelConfig gpt2() {
  ModelConfig model = llama();
  model.mlp = Mlp::gelu, model.n_kv_head = 4, model.bias = true, model.tie_weights = true;
  model.position = Position::learned;
  return model;
}

// Queries are wider than the model, and keys and values are less wide than they.
ModelConfig wide_queries() {
  ModelConfig model = llama();
  model.n_head_dim = 20;
  return model;
}

OptimizerConfig muon_config(OptimizerKind kind = OptimizerKind::muon, StateDtype dtype = StateDtype::float32) {
  OptimizerConfig config = with_state(dtype);
  config.kind = kind;
  return config;
}

class MuonTest : public AdamWTest {
 protected:
  parameters::Parameters make_model(const ModelConfig& model, const parameters::ParameterTypes& types = {}) {
    parameters::Parameters parameters(layout::parameter_table(model), device(), types);
    for (const auto& [name, value] : parameters.values()) value.detach().copy_(at::randn(value.sizes(), generator_));
    return parameters;
  }
  bool by_squares(at::ScalarType type = at::kFloat) const { return device().is_cpu() && type == at::kFloat; }
  void move(Optimizer& optimizer, double learning_rate, double grad_scale = 1, double found_inf = 0) {
    optimizer.step(scalars(learning_rate, grad_scale, found_inf));
  }
};

// The momentum of a parameter in float64; codes are read with the published map.
at::Tensor momentum_of(const OptimizerState& state, const std::string& name) {
  const auto find = [&](std::string_view slot) {
    for (const auto& [of, tensor] : state.slot(slot))
      if (of == name) return tensor;
    return at::Tensor();
  };
  const at::Tensor kept = find("momentum_buffer");
  if (!kept.defined() || kept.scalar_type() != at::kByte) return test::exact(kept);
  const std::vector<double> map = test::moment_map(true);
  const at::Tensor codes = kept.cpu().flatten(), maxima = find("momentum_buffer_max").cpu();
  at::Tensor values = at::empty({codes.numel()}, at::kDouble);
  for (int64_t i = 0; i < codes.numel(); ++i)
    values[i] = map[static_cast<size_t>(codes[i].item<int>())] * maxima[i / 256].item<double>();
  return values.view(kept.sizes());
}

struct Before {
  at::Tensor value, gradient, momentum, second;  // float64
};

std::vector<Before> before(const parameters::Parameters& parameters, const OptimizerState& state) {
  std::vector<Before> all;
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    Before one{test::exact(parameters[i].value()).clone(),
               test::exact(parameters[i].gradient()).clone(),
               momentum_of(state, parameters.rows()[i].name),
               {}};
    for (const auto& [of, tensor] : state.slot("second_momentum_buffer"))
      if (of == parameters.rows()[i].name) one.second = test::exact(tensor).clone();
    all.push_back(one);
  }
  return all;
}

struct Expected {
  at::Tensor value, momentum, second;
  double error = 0;  // of the value in the Frobenius norm
};

// Algorithm 1 of Jordan et al. for the matrices of `heights`, and NorMuon's lines where there is a second moment.
Expected exact_update(const Before& of, const std::vector<int64_t>& heights, const OptimizerConfig& config, double lr,
                      at::ScalarType type, double divisor, bool by_squares) {
  const double mu = config.muon_momentum, u = test::unit_roundoff(at::kFloat);
  const at::Tensor g = of.gradient / divisor;
  Expected result;
  result.momentum = mu * of.momentum + (1 - mu) * g;
  const at::Tensor direction = (1 - mu) * g + mu * result.momentum;
  std::vector<at::Tensor> updates, seconds;
  int64_t first = 0;
  double error = 0;
  for (const int64_t rows : heights) {
    const at::Tensor part = direction.narrow(0, first, rows);
    // The direction itself has the roundings of a few operations on numbers as large as the gradient and the momentum.
    const double parts = (g.narrow(0, first, rows).norm() + of.momentum.narrow(0, first, rows).norm()).item<double>() /
                         part.norm().item<double>();
    auto [update, of_update] =
        test::orthogonalized_exactly(part, type, 8 * u * parts + test::unit_roundoff(type), by_squares);
    if (of.second.defined()) {
      const at::Tensor second = 0.95 * of.second.narrow(0, first, rows) + 0.05 * update.square().mean(1);
      const at::Tensor scaled = update / (second.sqrt() + 1e-10).unsqueeze(1);
      const at::Tensor even = scaled * (update.norm() / scaled.norm());
      // A row is divided by the root of a mean that the error is in too, and all by a norm that it is in.
      const double largest = (even.norm(2, 1) / update.norm(2, 1)).max().item<double>();
      of_update = 4 * largest * of_update;
      update = even;
      seconds.push_back(second);
    }
    const double size = 0.2 * std::sqrt(static_cast<double>(std::max(rows, of.value.size(1))));
    updates.push_back(size * update);
    error += size * (of_update + 2 * test::unit_roundoff(type) * update.norm().item<double>());
    first += rows;
  }
  const at::Tensor update = at::cat(updates);
  at::Tensor kept = of.value * (1 - lr * config.weight_decay);
  if (config.cautious_weight_decay) kept = at::where(update * of.value >= 0, kept, of.value);
  result.value = kept - lr * update;
  if (!seconds.empty()) result.second = at::cat(seconds);
  result.error = lr * error + 4 * u * (of.value.norm() + lr * update.norm()).item<double>();
  return result;
}

TEST_P(MuonTest, UpdatesEachMatrixByItself) {
  using enum OptimizerKind;
  for (const ModelConfig& model : {llama(), gpt2(), wide_queries()}) {
    for (const OptimizerKind kind : {muon, normuon}) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const OptimizerConfig config = muon_config(kind);
        const parameters::Parameters parameters = make_model(model);
        Muon optimizer(parameters, config, type);
        for (int64_t t = 1; t <= 3; ++t) {
          const double lr = 0.1 / static_cast<double>(t);
          draw_gradients(parameters);
          const std::vector<Before> start = before(parameters, clone(optimizer.state()));
          move(optimizer, lr, 2.5);
          const std::vector<Before> found = before(parameters, optimizer.state());
          for (size_t i = 0; i < start.size(); ++i) {
            const layout::ParameterRow& row = parameters.rows()[i];
            if (!start[i].momentum.defined()) continue;
            SCOPED_TRACE(testing::Message() << row.name << " in " << type << ", update " << t);
            const Expected expected =
                exact_update(start[i], rows_of_matrices(row), config, lr, type, 2.5, by_squares(type));
            EXPECT_LE((found[i].value - expected.value).norm().item<double>(), expected.error);
            const double u = test::unit_roundoff(at::kFloat);
            EXPECT_LE((found[i].momentum - expected.momentum).abs().max().item<double>(),
                      8 * u * (start[i].momentum.abs().max() + start[i].gradient.abs().max()).item<double>());
            ASSERT_EQ(found[i].second.defined(), kind == normuon);
            if (kind != normuon || type != at::kFloat) continue;
            EXPECT_LE(((found[i].second - expected.second) / expected.second).abs().max().item<double>(), 0.001);
          }
        }
      }
    }
  }
}

TEST_P(MuonTest, HasTheBlocksMatricesAndNoOthers) {
  for (const ModelConfig& model : {llama(), gpt2()}) {
    const parameters::Parameters parameters = make_model(model);
    const Muon optimizer(parameters, muon_config());
    const OptimizerState state = optimizer.state();
    std::vector<std::string> matrices, others;
    for (const auto& [name, tensor] : parameters.values()) {
      const bool is_matrix = name.find(".h.") != std::string::npos && tensor.dim() == 2;
      (is_matrix ? matrices : others).push_back(name);
    }
    const auto names = [&](std::string_view slot) {
      std::vector<std::string> result;
      for (const auto& [name, tensor] : state.slot(slot)) result.push_back(name);
      return result;
    };
    EXPECT_EQ(names("momentum_buffer"), matrices);
    EXPECT_EQ(names("exp_avg"), others);
    EXPECT_EQ(names("exp_avg_sq"), others);
    EXPECT_TRUE(names("second_momentum_buffer").empty());
  }
}

TEST_P(MuonTest, AllElseIsUpdatedAsByAdamWToTheBit) {
  const parameters::Parameters parameters = make_model(gpt2()), copies = make_model(gpt2());
  parameters::Parameters(copies).copy_from(parameters.values());
  Muon muon(parameters, muon_config());
  AdamW adamw(copies, kConfig);
  for (int i = 0; i < 3; ++i) {
    const at::Generator same = generator_.clone();
    draw_gradients(parameters);
    generator_ = same;
    draw_gradients(copies);
    move(muon, 0.1), move(adamw, 0.1);
  }
  const OptimizerState state = muon.state(), of_adamw = adamw.state();
  EXPECT_EQ(state.step_count.item<float>(), 3);
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const bool is_matrix = momentum_of(state, parameters.rows()[i].name).defined();
    EXPECT_EQ(parameters[i].value().equal(copies[i].value()), !is_matrix) << parameters.rows()[i].name;
  }
}

TEST(Muon, QueryKeyAndValueAreThreeMatricesByTheirWidth) {
  std::vector<layout::ParameterRow> rows = layout::parameter_table(llama());
  const auto of = [&rows](layout::ParameterRole role) {
    return rows_of_matrices(
        *std::find_if(rows.begin(), rows.end(), [role](const auto& row) { return row.role == role; }));
  };
  EXPECT_EQ(of(layout::ParameterRole::attention_in), (std::vector<int64_t>{20, 10, 10}));
  EXPECT_EQ(of(layout::ParameterRole::mlp_gate), std::vector<int64_t>{50});
  ModelConfig narrow = llama();
  narrow.n_head_dim = 2;  // instead of 5
  rows = layout::parameter_table(narrow);
  EXPECT_EQ(of(layout::ParameterRole::attention_in), (std::vector<int64_t>{8, 4, 4}));
}

TEST_P(MuonTest, ASkippedUpdateChangesNoBit) {
  for (const OptimizerKind kind : {OptimizerKind::muon, OptimizerKind::normuon}) {
    for (const StateDtype dtype : {StateDtype::float32, StateDtype::bfloat16, StateDtype::int8}) {
      const parameters::Parameters parameters = make_model(llama(), {.compute = at::kBFloat16});
      Muon optimizer(parameters, muon_config(kind, dtype));
      draw_gradients(parameters);
      move(optimizer, 0.1);
      const parameters::NamedTensors values = clone(parameters.values());
      const at::Tensor copies = parameters.flat_rounded().clone();
      EXPECT_TRUE(copies.equal(parameters.flat_values().detach().to(at::kBFloat16)));
      const OptimizerState state = clone(optimizer.state());
      for (const auto& [name, gradient] : parameters.gradients())
        gradient.fill_(std::numeric_limits<float>::quiet_NaN());
      move(optimizer, 0.1, std::numeric_limits<double>::quiet_NaN(), /*found_inf=*/1);
      expect_same_bits(parameters.values(), values);
      EXPECT_TRUE(parameters.flat_rounded().equal(copies));
      expect_same_bits(optimizer.state(), state);
    }
  }
}

TEST_P(MuonTest, TheMomentumMayHaveFewerBits) {
  const std::vector<double> map = test::moment_map(true);
  for (const StateDtype dtype : {StateDtype::bfloat16, StateDtype::int8}) {
    const OptimizerConfig config = muon_config(OptimizerKind::muon, dtype);
    const parameters::Parameters parameters = make_model(llama());
    Muon optimizer(parameters, config, at::kFloat);
    for (int64_t t = 1; t <= 3; ++t) {
      draw_gradients(parameters);
      const std::vector<Before> start = before(parameters, clone(optimizer.state()));
      move(optimizer, 0.1);
      const OptimizerState state = optimizer.state();
      const std::vector<Before> found = before(parameters, state);
      for (size_t i = 0; i < start.size(); ++i) {
        if (!start[i].momentum.defined()) continue;
        const layout::ParameterRow& row = parameters.rows()[i];
        SCOPED_TRACE(testing::Message() << row.name << ", update " << t);
        // The value follows from the momentum before it is rounded.
        const Expected expected =
            exact_update(start[i], rows_of_matrices(row), config, 0.1, at::kFloat, 1, by_squares());
        EXPECT_LE((found[i].value - expected.value).norm().item<double>(), expected.error);
        const at::Tensor error = (found[i].momentum - expected.momentum).abs();
        if (dtype == StateDtype::bfloat16) {
          EXPECT_TRUE(
              error.le(1.001 * test::unit_roundoff(at::kBFloat16) * expected.momentum.abs() + 1e-6).all().item<bool>());
        } else {
          // Half of the widest gap of the map, 0.9/64 of a block's largest magnitude.
          EXPECT_LE(error.max().item<double>(), 0.0071 * expected.momentum.abs().max().item<double>());
        }
      }
    }
  }
}

TEST_P(MuonTest, TheDecayIsMultipliedByItsShare) {
  OptimizerConfig config = muon_config(), of_share = config;
  config.weight_decay = 8, of_share.weight_decay = 2;
  const parameters::Parameters parameters = make_model(llama());
  Muon optimizer(parameters, config, at::kFloat);
  draw_gradients(parameters);
  const std::vector<Before> start = before(parameters, clone(optimizer.state()));
  optimizer.step(scalars(0.01, /*grad_scale=*/1, /*found_inf=*/0, /*decay_share=*/0.25));
  const std::vector<Before> found = before(parameters, optimizer.state());
  for (size_t i = 0; i < start.size(); ++i) {
    const layout::ParameterRow& row = parameters.rows()[i];
    if (!start[i].momentum.defined()) continue;
    const Expected expected =
        exact_update(start[i], rows_of_matrices(row), of_share, 0.01, at::kFloat, 1, by_squares());
    EXPECT_LE((found[i].value - expected.value).norm().item<double>(), expected.error) << row.name;
  }
}

TEST_P(MuonTest, CautiousWeightDecayLeavesWhatTheUpdateMovesAwayFromZero) {
  OptimizerConfig config = muon_config();
  config.cautious_weight_decay = true, config.weight_decay = 5;
  const parameters::Parameters parameters = make_model(llama());
  Muon optimizer(parameters, config, at::kFloat);
  draw_gradients(parameters);
  const std::vector<Before> start = before(parameters, clone(optimizer.state()));
  move(optimizer, 0.01);
  const std::vector<Before> found = before(parameters, optimizer.state());
  for (size_t i = 0; i < start.size(); ++i) {
    const layout::ParameterRow& row = parameters.rows()[i];
    if (start[i].momentum.defined()) {
      const Expected expected =
          exact_update(start[i], rows_of_matrices(row), config, 0.01, at::kFloat, 1, by_squares());
      EXPECT_LE((found[i].value - expected.value).norm().item<double>(), expected.error) << row.name;
    } else if (row.decays()) {  // the first update of AdamW is a step of 0.01 against the gradient
      const at::Tensor step = 0.01 * start[i].gradient / (start[i].gradient.abs() + config.eps);
      const at::Tensor kept = at::where(start[i].gradient * start[i].value >= 0,
                                        (1 - 0.01 * config.weight_decay) * start[i].value, start[i].value);
      EXPECT_LE((found[i].value - (kept - step)).abs().max().item<double>(), test::tolerance(at::kFloat, 12, 4))
          << row.name;
    }
  }
}

TEST_P(MuonTest, ValuesAloneInSixteenBitsAreRoundedToANeighbour) {
  const parameters::Parameters alone =
      make_model(llama(), {.compute = at::kBFloat16, .has_master = false, .gradient = at::kBFloat16});
  parameters::Parameters exact = make_model(llama());
  exact.copy_from(alone.values());
  Muon of_alone(alone, muon_config()), of_exact(exact, muon_config());
  draw_gradients(alone);
  const parameters::NamedTensors gradients = alone.gradients();
  exact.clear_gradients();
  for (size_t i = 0; i < gradients.size(); ++i) exact[i].add_to_gradient(gradients[i].second);
  move(of_alone, 0.1);
  move(of_exact, 0.1);
  expect_same_bits(of_alone.state(), of_exact.state());
  const at::Tensor expected = test::exact(exact.flat_values()),
                   error = (test::exact(alone.flat_values()) - expected).abs();
  EXPECT_TRUE(error.le(expected.abs() * (2 * test::unit_roundoff(at::kBFloat16))).all().item<bool>());
  EXPECT_FALSE(alone.flat_values().equal(exact.flat_values().detach().to(at::kBFloat16)))
      << "some go to the neighbour that is farther away";
}

TEST_P(MuonTest, StateTravelsAndIsConverted) {
  using enum StateDtype;
  for (const OptimizerKind kind : {OptimizerKind::muon, OptimizerKind::normuon}) {
    for (const StateDtype dtype : {float32, bfloat16, int8}) {
      const parameters::Parameters parameters = make_model(llama()), copies = make_model(llama());
      Muon optimizer(parameters, muon_config(kind, dtype)), other(copies, muon_config(kind, dtype));
      draw_gradients(parameters);
      move(optimizer, 0.1);
      parameters::Parameters(copies).copy_from(parameters.values());
      other.load(clone(optimizer.state()));
      expect_same_bits(other.state(), optimizer.state());
      const at::Generator same = generator_.clone();
      draw_gradients(parameters);
      generator_ = same;
      draw_gradients(copies);
      move(optimizer, 0.1), move(other, 0.1);
      expect_same_bits(copies.values(), parameters.values());
      expect_same_bits(other.state(), optimizer.state());

      Muon wide(copies, muon_config(kind, float32));
      wide.load(clone(optimizer.state()));
      const OptimizerState from = optimizer.state(), to = wide.state();
      for (const layout::ParameterRow& row : parameters.rows()) {
        const at::Tensor expected = momentum_of(from, row.name);
        if (!expected.defined()) continue;
        EXPECT_LE((momentum_of(to, row.name) - expected).abs().max().item<double>(), 1e-6) << row.name;
      }
    }
  }
}

TEST_P(MuonTest, OffloadingChangesNothingButThePlace) {
  for (const StateDtype dtype : {StateDtype::float32, StateDtype::int8}) {
    OptimizerConfig config = muon_config(OptimizerKind::normuon, dtype);
    const auto train = [&] {
      generator_ = at::detail::createCPUGenerator(3);
      const parameters::Parameters parameters = make_model(llama());
      Muon optimizer(parameters, config);
      for (int i = 0; i < 3; ++i) draw_gradients(parameters), move(optimizer, 0.1);
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
  }
}

TEST_P(MuonTest, RefusesStateOfAnotherOptimizerAndMissingGradients) {
  const parameters::Parameters parameters = make_model(llama());
  Muon optimizer(parameters, muon_config()), normuon(parameters, muon_config(OptimizerKind::normuon));
  AdamW adamw(parameters, kConfig);
  EXPECT_THROW(optimizer.load(adamw.state()), Error);
  EXPECT_THROW(adamw.load(optimizer.state()), Error);
  EXPECT_THROW(optimizer.load(normuon.state()), Error);
  EXPECT_THROW(normuon.load(optimizer.state()), Error);
  EXPECT_THROW(move(optimizer, 0.1), c10::Error);
}

TEST_P(MuonTest, PaddingStaysZero) {
  const parameters::Parameters parameters = make_model(llama());
  Muon optimizer(parameters, muon_config(OptimizerKind::normuon, StateDtype::int8));
  for (int i = 0; i < 2; ++i) draw_gradients(parameters), move(optimizer, 0.1);
  double used = 0;
  for (const auto& [name, value] : parameters.values()) used += value.detach().abs().sum(at::kDouble).item<double>();
  EXPECT_DOUBLE_EQ(parameters.flat_values().detach().abs().sum(at::kDouble).item<double>(), used);
}

// A momentum for each value of a matrix, and for NorMuon a number for each row; two moments for all else.
TEST(Muon, RemembersHalfOfWhatAdamWDoes) {
  ModelConfig model = llama();
  model.n_embd = 64, model.n_hidden = 128;
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(model);
  const layout::FlatLayout layout = layout::flat_layout(rows);
  int64_t of_matrices = 0, of_rows = 0, others = 0;
  for (const layout::ParameterRow& row : rows) {
    const bool is_matrix = row.name.find(".h.") != std::string::npos && row.shape.size() == 2;
    (is_matrix ? of_matrices : others) += layout::aligned_end(row.count());
    if (is_matrix) of_rows += row.shape[0];
  }
  const auto bytes = [&](const OptimizerConfig& config) { return state_bytes(rows, layout, config).device; };
  EXPECT_EQ(bytes(kConfig), 8 * (of_matrices + others));
  EXPECT_EQ(bytes(muon_config()), 4 * of_matrices + 8 * others);
  EXPECT_EQ(bytes(muon_config(OptimizerKind::normuon)), 4 * of_matrices + 4 * of_rows + 8 * others);
  EXPECT_EQ(bytes(muon_config(OptimizerKind::muon, StateDtype::int8)),
            of_matrices + 4 * of_matrices / 256 + 2 * others + 8 * others / 256);
}

INSTANTIATE_TEST_SUITE_P(Devices, MuonTest, testing::ValuesIn(kDevicesAndEmulation), testing::PrintToStringParamName());

}  // namespace
}  // namespace gpt::optim
