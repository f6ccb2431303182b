// A run in memory does what its parts do one by one.
#include "gpt/run/run.h"

#include <gtest/gtest.h>

#include "gpt/core/process.h"
#include "gpt/ops/operator_sets.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/products/tuned_product.h"
#include "gpt/run/decisions.h"
#include "support/captured_log.h"
#include "support/device_cases.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

bool never_stops() { return false; }

class RunTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    corpus_ = some_corpus();
    corpus_.validation = corpus_.train;
    config_ = tiny_config(corpus_);
    config_.training.schedule.max_steps = 20;
    config_.training.precision.use_amp = false;
  }
  run::Setup setup() const { return {config_, corpus_, device::describe_device(device()), device::Precision{}}; }

  data::Corpus corpus_;
  Config config_;
};

// One after the other, because on a GPU both draw attention's dropout from the process's generator, which each seeds.
TEST_P(RunTest, AnUpdateFollowsTheScheduleOfThePlan) {
  constexpr int64_t kSteps = 3;
  OptimizerConfig& optimizer = config_.training.optimizer;
  optimizer.weight_decay = 5, optimizer.decay_schedule = DecaySchedule::linear;
  const int64_t steps = *config_.training.schedule.max_steps;
  const auto rates = [&](int64_t step) {
    return optim::ScheduledRates(optim::learning_rate_at(config_.training.schedule, step, steps),
                                 1 - static_cast<double>(step) / static_cast<double>(steps));
  };
  std::vector<int64_t> tokens;
  checkpoint::Checkpoint expected;
  {
    TinyRun parts(config_, corpus_, device(), device::Precision{});
    for (int64_t& step = parts.state.step; step < kSteps; ++step) {
      const int64_t micro_batches = config_.training.gradient_accumulation_steps;
      tokens.push_back(*run_update(parts.step, parts.state.loader, micro_batches, rates(step), step, never_stops));
    }
    expected = parts.state.capture();
  }
  const run::Setup setup = this->setup();
  run::Run run(setup);
  for (int64_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(run.learning_rate(), rates(step).learning_rate);
    EXPECT_EQ(run.rates().decay_share, rates(step).decay_share);
    EXPECT_EQ(run.update(never_stops), tokens[step]);
    EXPECT_EQ(run.state().step, step + 1);
  }
  expect_same_weights_and_moments(run.state().capture(), expected);
}

// As a run of max_time does, or one that was told another length.
TEST_P(RunTest, TheWeightDecayGoesByHowFarTheRunIs) {
  config_.training.optimizer.decay_schedule = DecaySchedule::linear;
  const run::Setup setup = this->setup();
  run::Run run(setup);
  run.state().step = 12;
  EXPECT_DOUBLE_EQ(run.rates().decay_share, 0.4);
  run.state().course = {.planned = 20, .total = 30, .since = 10, .position = 10};  // half of it, over 20 updates
  EXPECT_DOUBLE_EQ(run.rates().decay_share, 0.45);
  run.state().step = 30;
  EXPECT_EQ(run.rates().decay_share, 0);
}

// A run of max_time whose max_steps is lowered on its way.
TEST_P(RunTest, ATimedRunEndsWithItsScheduleWhereItIsLimitedAnew) {
  ScheduleConfig& schedule = config_.training.schedule;
  schedule.max_steps.reset(), schedule.max_time.seconds = 3600;
  const run::Setup setup = this->setup();
  run::Run first(setup, Beginning{.start = {}, .initial = {}, .total_steps = 40});
  EXPECT_EQ(first.state().decisions, (std::vector<checkpoint::Decision>{{0, kTotalSteps, 40}}));
  ASSERT_TRUE(first.update(never_stops));
  schedule.max_steps = 10;
  const run::Setup limited = this->setup();
  run::Run second(limited, Beginning{StartingPoint{first.state().capture(), "a"}, {}});
  EXPECT_EQ(second.plan().total_steps, 10);
  EXPECT_EQ(second.state().decisions.back(), (checkpoint::Decision{1, kTotalSteps, 10}));
  EXPECT_DOUBLE_EQ(second.learning_rate(), first.learning_rate()) << "it does not jump";
  second.state().step = 10;
  EXPECT_EQ(second.learning_rate(), schedule.min_lr);
}

// Where positions are rotated, what a model could see beside a sequence changes nothing, and learned positions behind it stay as they are.
TEST_P(RunTest, SequencesMayBeShorterThanTheContext) {
  const auto after_two = [this](Position position, int64_t block_size, std::optional<int64_t> length) {
    Config config = config_;
    config.model.position = position, config.model.block_size = block_size;
    config.training.sequence_length = length;
    config.training.optimizer.weight_decay = 0;
    const run::Setup setup{config, corpus_, device::describe_device(device()), device::Precision{}};
    run::Run run(setup);
    const int64_t tokens = run.update(never_stops).value();
    EXPECT_EQ(tokens, config.training.batch_size * config.training.gradient_accumulation_steps * 8);
    run.update(never_stops);
    return run.state().capture();
  };
  expect_same_weights_and_moments(after_two(Position::rope, 32, 8), after_two(Position::rope, 8, std::nullopt));
  const auto positions = [](const checkpoint::Checkpoint& checkpoint) {
    return std::ranges::find(checkpoint.model, "transformer.wpe.weight", &parameters::NamedTensors::value_type::first)
        ->second;
  };
  const at::Tensor learned = positions(after_two(Position::learned, 32, 8));
  config_.model.position = Position::learned, config_.model.block_size = 32;
  const run::Setup untrained = setup();
  const at::Tensor before = positions(run::Run(untrained).state().capture());
  ASSERT_EQ(learned.size(0), 32);
  EXPECT_TRUE(at::equal(learned.narrow(0, 8, 24), before.narrow(0, 8, 24)));
  EXPECT_FALSE(at::equal(learned.narrow(0, 0, 8), before.narrow(0, 0, 8)));
}

// However an update is cut into micro-batches, its samples have the same masks. On a GPU attention's are LibTorch's.
TEST_P(RunTest, MicroBatchesOfHalfTheSizeGiveTheSameLossesWithDropout) {
  if (!device().is_cpu()) config_.model.dropout = 0;
  const auto losses = [this](int64_t batch_size, int64_t accumulated) {
    config_.training.batch_size = batch_size, config_.training.gradient_accumulation_steps = accumulated;
    const run::Setup setup = this->setup();
    run::Run run(setup);
    std::vector<double> result;
    for (int step = 0; step < 8; ++step) {
      EXPECT_TRUE(run.update(never_stops));
      result.push_back(run.step().loss().item<double>());
    }
    return result;
  };
  const std::vector<double> whole = losses(4, 1), halves = losses(2, 2);
  // Rounding, which AdamW's first updates amplify where a gradient is near 0. Other masks change a loss by hundredths.
  for (size_t step = 0; step < whole.size(); ++step) EXPECT_NEAR(halves[step], whole[step], 1e-5) << step;
}

TEST_P(RunTest, AnUpdateThatIsStoppedMidwayLeavesEverythingAsItWas) {
  const run::Setup setup = this->setup();
  run::Run run(setup);
  ASSERT_TRUE(run.update(never_stops));
  const checkpoint::Checkpoint before = run.state().capture();
  const at::Tensor weights = run.model().parameters().flat_values().clone();
  EXPECT_FALSE(run.update([] { return true; }));
  const checkpoint::Checkpoint after = run.state().capture();
  EXPECT_EQ(after.step, 1);
  EXPECT_EQ(after.data_sample, before.data_sample);
  for (const auto& [name, state] : before.rng) EXPECT_TRUE(state.equal(after.rng.at(name))) << name;
  EXPECT_TRUE(run.model().parameters().flat_values().equal(weights));
}

TEST_P(RunTest, ATriedUpdateLearnsNothing) {
  const run::Setup setup = this->setup();
  run::Run run(setup);
  const at::Tensor weights = run.model().parameters().flat_values().clone();
  run.try_update(2);
  EXPECT_EQ(run.state().step, 0);
  EXPECT_TRUE(run.model().parameters().flat_values().equal(weights));
}

TEST_P(RunTest, ActivationsThatWaitInTheMemoryOfTheHostChangeNothing) {
  config_.model.n_embd = 64, config_.model.block_size = 64;
  config_.training.execution.compile_mode = CompileMode::standard;  // a step that swaps is never recorded
  const auto trained = [&](int64_t swapped) {
    config_.training.execution.swap_activations = swapped;
    const run::Setup setup = this->setup();
    run::Run run(setup);
    for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(run.update(never_stops));
    EXPECT_EQ(run.model().swapped_bytes() > 0, swapped > 0);
    return run.state().capture();
  };
  const checkpoint::Checkpoint whole = trained(0);
  expect_same_weights_and_moments(trained(2), whole);
}

TEST_P(RunTest, GoesOnFromACheckpointOrWithOtherWeights) {
  const run::Setup setup = this->setup();
  run::Run first(setup);
  ASSERT_TRUE(first.update(never_stops));
  Beginning goes_on{StartingPoint{first.state().capture(), "a"}, {}};
  run::Run second(setup, goes_on);
  EXPECT_EQ(second.state().step, 1);
  goes_on.release_tensors();
  ASSERT_TRUE(second.update(never_stops));

  const Beginning begins{{}, InitialWeights{"a", 2, second.state().capture().model, ""}};
  const run::Run third(setup, begins);
  EXPECT_EQ(third.state().step, 0);
  expect_equal(third.state().capture().model, second.state().capture().model);
}

// Computes what ours compute, but for a wrong gate.
class WrongOperators : public ops::WrappedOperators {
 public:
  WrongOperators() : WrappedOperators(ops::aten_operators()) {}
  at::Tensor activate_gated(ops::Activation, const at::Tensor& gate, const at::Tensor& in,
                            const ops::DropoutSpec&) const override {
    return gate + in;
  }
};

TEST_P(RunTest, WhereItsOperatorsAreWrongItGoesOnWithLibTorchsAndRecordsNothing) {
  const run::Setup setup = this->setup();
  int64_t replays = 0;
  run::Run run(setup, {}, [&](model::GPT& model) { return test::counting_recorder(model, replays); });
  EXPECT_TRUE(run.step().is_recorded());
  run.model().set_operators(std::make_shared<WrongOperators>());
  test::CapturedLog log;
  run.check_operators();
  EXPECT_NE(log.text().find("Failed to compile"), std::string::npos);
  EXPECT_EQ(run.model().operators(), ops::aten_operators());
  EXPECT_FALSE(run.step().is_recorded());
  for (int i = 0; i < Recorder::kRunsBefore + 2; ++i) ASSERT_TRUE(run.update(never_stops));
  EXPECT_EQ(replays, 0);
}

TEST_P(RunTest, WhereItsOperatorsAreWrongActivationsCannotBeSwapped) {
  config_.training.execution.compile_mode = CompileMode::standard;
  config_.training.execution.swap_activations = 1;
  config_.training.execution.gradient_checkpointing = GradientCheckpointing::norm;  // which can do without them
  const run::Setup setup = this->setup();
  run::Run run(setup);
  run.model().set_operators(std::make_shared<WrongOperators>());
  const test::CapturedLog log;
  EXPECT_ERROR(
      run.check_operators(), ExitCode::config,
      "training.swap_activations: swap_activations needs use_compile's operators, which keep each tensor once, "
      "which failed here or in another process; change this key");
}

TEST_P(RunTest, OnAGpuACheckpointHasHowProductsAreComputed) {
  config_.training.execution.compile_mode = CompileMode::max_autotune;
  const run::Setup setup = this->setup();
  run::Run run(setup);
  ASSERT_TRUE(run.update(never_stops));
  const auto chosen = run.state().capture().chosen_products;
  ASSERT_EQ(chosen.has_value(), device().is_cuda());
  if (chosen) { EXPECT_GT(ops::choose_products(*chosen), 0); }
}

// What cannot be recorded.
class NoGraphs : public device::Graphs {
 public:
  std::unique_ptr<device::Graph> make() override {
    class NoGraph : public device::Graph {
      void record(const std::function<void()>& /*work*/) override { throw std::runtime_error("no"); }
      void replay() override {}
    };
    return std::make_unique<NoGraph>();
  }
  void run(const std::function<void()>& work) override { work(); }
};

TEST_P(RunTest, AStepThatCouldNotBeRecordedIsNotRecordedWhereTheRunGoesOn) {
  const run::Setup setup = this->setup();
  run::Run first(setup, {}, [](model::GPT&) { return Recorder(std::make_unique<NoGraphs>()); });
  for (int i = 0; i < Recorder::kRunsBefore; ++i) ASSERT_TRUE(first.update(never_stops));
  EXPECT_TRUE(first.step().is_recorded());
  EXPECT_FALSE(first.state().capture().recording_failed);
  test::CapturedLog log;
  ASSERT_TRUE(first.update(never_stops));
  const Beginning goes_on{StartingPoint{first.state().capture(), "a"}, {}};
  EXPECT_TRUE(goes_on.start->checkpoint.recording_failed);

  int64_t replays = 0;
  const auto records = [&](model::GPT& model) { return test::counting_recorder(model, replays); };
  EXPECT_FALSE(run::Run(setup, goes_on, records).step().is_recorded());
  EXPECT_NE(log.text().find("is not tried again"), std::string::npos) << log.text();
  Beginning elsewhere = goes_on;
  elsewhere.start->checkpoint.environment["device"] = "another";
  EXPECT_TRUE(run::Run(setup, elsewhere, records).step().is_recorded());
}

TEST_P(RunTest, AnEvaluationTakesTheSequencesThatTheRunHasSettledOn) {
  const run::Setup setup = this->setup();
  run::Run run(setup);
  run.state().eval_sequences = 4;
  EXPECT_EQ(run.evaluator().run(run.model(), [](double) { return false; }).sequences, 4);
}

INSTANTIATE_ON_DEVICES(RunTest);

}  // namespace
}  // namespace gpt::run
