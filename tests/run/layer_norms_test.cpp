// Norms of an update by layer are those that float64 finds in what a run had before and after it, whatever processes divide of the run.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "gpt/layout/tuning.h"
#include "run/mesh_run.h"
#include "support/counted_graphs.h"

namespace gpt::run {
namespace {

struct NormsCase {
  const char* name;
  std::function<void(Config&)> set;
  std::vector<Shape> shapes = {};    // besides one process
  at::ScalarType type = at::kFloat;  // of the roundings of gradients
};

void PrintTo(const NormsCase& norms_case, std::ostream* out) { *out << norms_case.name; }

const NormsCase kNormsCases[] = {
    {"llama_tied", [](Config&) {}, {{2, 1}, {2, 2}, {2, 1, 2}, {4, 2, 2}}},
    {"gpt2_untied",
     [](Config& config) {
       make_gpt2(config);
       config.model.tie_weights = false;
     },
     {{2, 1, 2}, {4, 2, 2}}},
    {"frozen", [](Config& config) { config.training.tuning.freeze = {"wte", "h.0"}; }, {{2, 2}}},
    {"adapters", [](Config& config) { config.training.tuning.lora.rank = 2; }, {{2, 1}, {2, 1, 2}}},
    {"zero_1", [](Config& config) { config.distributed.zero = 1; }, {{2, 1}, {4, 2}}},
    {"zero_2", [](Config& config) { config.distributed.zero = 2; }, {{2, 1}, {4, 2}}},
    {"zero_3", [](Config& config) { config.distributed.zero = 3; }, {{2, 1}}},
    {"zero_1_of_muon",
     [](Config& config) {
       config.training.optimizer.kind = OptimizerKind::muon;
       config.distributed.zero = 1;
     },
     {{2, 1}}},
    {"clipped", [](Config& config) { config.training.optimizer.gradient_clip = 0.01; }},
    {"bfloat16_end_to_end", [](Config& config) { use_bfloat16(config, AmpMode::end_to_end); }, {{2, 1}}, at::kBFloat16},
    {"weights_of_bfloat16_alone",
     [](Config& config) {
       use_bfloat16(config, AmpMode::end_to_end);
       config.training.precision.master_weights = false;
       config.training.optimizer.state_dtype = StateDtype::bfloat16;
     },
     {{2, 1}},
     at::kBFloat16},
};

using TensorNamed = std::function<at::Tensor(const std::string& name)>;

std::vector<double> norms_apart(const Config& config, const TensorNamed& tensor_named) {
  std::vector<double> norms(static_cast<size_t>(config.model.n_layer) + 2);
  for (const layout::ParameterRow& row : layout::parameter_table(config.model, config.training.tuning))
    if (row.is_trained)
      norms[static_cast<size_t>(row.layer + 1)] += test::exact(tensor_named(row.name)).square().sum().item<double>();
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

at::Tensor named(const parameters::NamedTensors& tensors, const std::string& name) {
  for (const auto& [known, tensor] : tensors)
    if (known == name) return tensor;
  ADD_FAILURE() << "there is no " << name;
  return at::zeros({1});
}

struct Measured {
  report::LayerNorms norms, apart;  // the latter in the first process; gradients where it is the only one
};

bool update(Run& run) {
  return run.update([] { return false; }).has_value();
}

checkpoint::Checkpoint copied_and_discarded(Run& run, const Setup& setup) {
  const checkpoint::Checkpoint copy = copy_of_whole(run.state(), setup);
  run.state().discard();
  return copy;
}

// Norms of the second update: the first has changed the weights.
Measured measured(const Setup& setup) {
  Run run(setup);
  EXPECT_TRUE(update(run));
  EXPECT_FALSE(run.step().norms()) << "nobody has asked";
  const checkpoint::Checkpoint before = copied_and_discarded(run, setup);
  run.step().measure_norms(true);
  EXPECT_TRUE(update(run));
  Measured result{.norms = *run.step().norms(), .apart = {}};
  const checkpoint::Checkpoint after = copied_and_discarded(run, setup);
  if (!setup.mesh.all->is_first()) return result;
  const Config& config = setup.config;
  const auto weight = [&](const std::string& name) { return named(after.model, name); };
  const auto change = [&](const std::string& name) {
    return test::exact(named(after.model, name)) - test::exact(named(before.model, name));
  };
  result.apart = {.gradient = {}, .weight = norms_apart(config, weight), .update = norms_apart(config, change)};
  if (setup.mesh.all->size() > 1) return result;
  const parameters::NamedTensors gradients = run.model().parameters().gradients();
  result.apart.gradient = norms_apart(config, [&](const std::string& name) { return named(gradients, name); });
  return result;
}

// Sums of squares over blocks are float32, and those of blocks float64.
double rounding_of(double norm) { return test::tolerance(at::kFloat, layout::kParameterAlignment + 2, norm); }

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], rounding_of(expected[i])) << what << " of layer " << i;
}

Measured measured_on(const Shape& shape, const Config& config, const data::Corpus& corpus) {
  std::vector<Measured> all(static_cast<size_t>(shape.processes));
  in_mesh(shape, config, corpus,
          [&](const Setup& setup) { all[static_cast<size_t>(setup.mesh.all->rank())] = measured(setup); });
  for (const Measured& other : all)
    for (const auto& [name, norms] : report::kLayerNormFields)
      EXPECT_EQ(other.norms.*norms, all[0].norms.*norms) << name;
  expect_near(all[0].norms.weight, all[0].apart.weight, "weights");
  expect_near(all[0].norms.update, all[0].apart.update, "update");
  return all[0];
}

class LayerNormsOfRun : public testing::TestWithParam<NormsCase> {};

TEST_P(LayerNormsOfRun, AreThoseOfItsWeightsAndGradients) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  config.training.cadence.log_norms = true;
  GetParam().set(config);
  const Measured one = measured_on({1, 1}, config, corpus);
  expect_near(one.norms.gradient, one.apart.gradient, "gradients");
  for (const double norm : one.norms.gradient) EXPECT_GE(norm, 0);
  EXPECT_GT(one.norms.update[2], 0) << "or nothing is shown";
  const auto& gradient = one.norms.gradient;
  const double all = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
  for (const Shape& shape : GetParam().shapes) {
    const Measured divided = measured_on(shape, config, corpus);
    ASSERT_EQ(divided.norms.layers(), one.norms.layers());
    for (size_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(divided.norms.gradient[i], gradient[i],
                  2 * test::tolerance(GetParam().type, roundings_of(config), all))
          << shape.processes << " processes, layer " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LayerNormsOfRun, testing::ValuesIn(kNormsCases),
                         [](const auto& test) { return std::string(test.param.name); });

struct TinySetup {
  explicit TinySetup(bool log_norms = true) {
    config = divided_run(corpus);
    config.training.cadence.log_norms = log_norms;
  }
  Setup setup() const { return {config, corpus, device::describe_device(at::kCPU), device::Precision{}}; }

  data::Corpus corpus = corpus_with_validation();
  Config config;
};

TEST(LayerNormsOfStep, DoNotDependOnTheScaleOfTheLoss) {
  const TinySetup tiny;
  run::Setup scaled = tiny.setup();
  scaled.precision.grad_scaler = true;
  expect_near(measured(scaled).norms.gradient, measured(tiny.setup()).norms.gradient, "gradients");
}

TEST(LayerNormsOfStep, OfAnUpdateThatIsSkippedSayThatNothingChanged) {
  const TinySetup tiny;
  run::Setup setup = tiny.setup();
  setup.precision.grad_scaler = true;
  run::Run run(setup);
  run.state().scaler.load(at::full({}, std::numeric_limits<float>::max()), run.state().scaler.growth_tracker());
  run.step().measure_norms(true);
  ASSERT_TRUE(update(run));
  ASSERT_EQ(run.step().skipped().item<float>(), 1);
  const report::LayerNorms norms = *run.step().norms();
  EXPECT_EQ(norms.update, std::vector<double>(norms.update.size()));
  EXPECT_GT(norms.weight[1], 0);
  EXPECT_FALSE(std::isfinite(norms.gradient[1]));
}

// What is recorded is replayed, and the norms are measured around it; measuring changes nothing.
TEST(LayerNormsOfStep, OfARecordedUpdateAreThoseOfOneThatIsNot) {
  const TinySetup tiny;
  const run::Setup setup = tiny.setup();
  int64_t replays = 0;
  run::Run eager(setup), silent(setup),
      recorded(setup, {}, [&](model::GPT& model) { return test::counting_recorder(model, replays); });
  for (int i = 0; i < 6; ++i) {
    for (run::Run* run : {&eager, &recorded}) {
      run->step().measure_norms(i % 2 == 1);
      ASSERT_TRUE(update(*run));
    }
    ASSERT_TRUE(update(silent));
  }
  EXPECT_GT(replays, 0);
  for (const auto& [name, norms] : report::kLayerNormFields)
    EXPECT_EQ((*recorded.step().norms()).*norms, (*eager.step().norms()).*norms) << name;
  expect_equal(recorded.model().parameters().values(), eager.model().parameters().values());
  expect_equal(silent.model().parameters().values(), eager.model().parameters().values());
}

TEST(LayerNormsOfStep, AreNotThereWithoutTheSetting) {
  const TinySetup tiny(/*log_norms=*/false);
  const run::Setup setup = tiny.setup();
  run::Run run(setup);
  run.step().measure_norms(true);
  ASSERT_TRUE(update(run));
  EXPECT_FALSE(run.step().norms());
}

}  // namespace
}  // namespace gpt::run
