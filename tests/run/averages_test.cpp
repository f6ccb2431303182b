// Averages of the weights in a run: with processes that divide it, in evaluations, after a rollback and when it goes on.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "gpt/optim/averaged_optimizer.h"
#include "gpt/run/weights_to_evaluate.h"
#include "run/mesh_run.h"
#include "support/captured_log.h"

namespace gpt::run {
namespace {

constexpr int64_t kAll = 6, kHalf = 3;
const auto kGoesOn = [] { return false; };
const auto kToTheEnd = [](double) { return false; };

// They begin with the third update.
Config averaged_run(const data::Corpus& corpus) {
  Config config = divided_run(corpus);
  config.training.schedule.max_steps = kAll;
  config.training.optimizer.ema_decay = 0.75;
  config.training.optimizer.average_after = 0.2;
  config.training.cadence.evaluates = EvaluatedWeights::averages;
  config.distributed.lanes = 2;
  return config;
}

// A run to its end, and its last evaluation.
Outcome run_to_end(const Setup& setup, const Beginning& begins = {}) {
  Run run(setup, begins);
  Outcome outcome;
  while (run.state().step < kAll) EXPECT_TRUE(run.update(kGoesOn));
  {
    const WeightsToEvaluate weights(run.state(), setup.config.training.cadence);
    outcome.validation = run.evaluator().run(run.model(), kToTheEnd).loss;
  }
  outcome.checkpoint = copy_of_whole(run.state(), setup);
  return outcome;
}

std::vector<Outcome> outcomes_on(const Shape& shape, const Config& config, const data::Corpus& corpus,
                                 const std::optional<checkpoint::Checkpoint>& start = {}) {
  std::vector<Outcome> all(static_cast<size_t>(shape.processes));
  in_mesh(shape, config, corpus, [&](const run::Setup& setup) {
    Beginning begins;
    if (start) begins.start = StartingPoint{.checkpoint = *start, .path = "saved"};
    all[static_cast<size_t>(setup.mesh.all->rank())] = run_to_end(setup, begins);
  });
  for (const Outcome& other : all) EXPECT_EQ(other.validation, all[0].validation);
  return all;
}

Outcome one_process(const Config& config, const data::Corpus& corpus,
                    const std::optional<checkpoint::Checkpoint>& start = {}) {
  return outcomes_on({1, 1}, config, corpus, start)[0];
}

// The validation loss of weights, or of averages, which a run reads as its weights.
double validation_with(const parameters::NamedTensors& weights, const Config& config, const data::Corpus& corpus) {
  Config plain = config;
  plain.training.optimizer.ema_decay = 0, plain.training.cadence.evaluates = EvaluatedWeights::weights;
  double loss = 0;
  in_mesh({1, 1}, plain, corpus, [&](const run::Setup& setup) {
    run::Run run(setup);
    run.model().copy_from(weights);
    loss = run.evaluator().run(run.model(), kToTheEnd).loss;
  });
  return loss;
}

TEST(Averages, AreTheReplayOfARun) {
  const data::Corpus corpus = corpus_with_validation();
  const Config config = averaged_run(corpus);
  in_mesh({1, 1}, config, corpus, [&](const run::Setup& setup) {
    run::Run run(setup);
    std::vector<at::Tensor> replay;
    for (int64_t update = 0; update < kAll; ++update) {
      ASSERT_TRUE(run.update(kGoesOn));
      const parameters::NamedTensors weights = run.state().capture().model;
      replay.resize(weights.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        const at::Tensor value = test::exact(weights[i].second);
        replay[i] = update < 2 ? value : 0.75 * replay[i] + 0.25 * value;
      }
    }
    const checkpoint::Checkpoint captured = run.state().capture();
    const parameters::NamedTensors& averages = captured.optimizer.slot(optim::kAverageSlot);
    ASSERT_EQ(averages.size(), replay.size());
    for (size_t i = 0; i < replay.size(); ++i) {
      EXPECT_LE((test::exact(averages[i].second) - replay[i]).abs().max().item<double>(),
                4 * kAll * test::unit_roundoff(at::kFloat) * replay[i].abs().max().item<double>());
      EXPECT_FALSE(averages[i].second.equal(captured.model[i].second)) << "or nothing is shown";
    }
  });
}

// In 16 bits too, whose copies follow them there and back.
TEST(Averages, AreEvaluatedAndLeaveTheWeightsAsTheyWere) {
  const data::Corpus corpus = corpus_with_validation();
  for (const bool is_end_to_end : {false, true}) {
    Config config = averaged_run(corpus);
    if (is_end_to_end) use_bfloat16(config, AmpMode::end_to_end);
    const Outcome averaged = one_process(config, corpus);
    EXPECT_EQ(averaged.validation,
              validation_with(averaged.checkpoint.optimizer.slot(optim::kAverageSlot), config, corpus));
    config.training.cadence.evaluates = EvaluatedWeights::weights;
    const Outcome weights = one_process(config, corpus);
    expect_same_state(averaged.checkpoint, weights.checkpoint);
    EXPECT_EQ(weights.validation, validation_with(weights.checkpoint.model, config, corpus));
    EXPECT_NE(weights.validation, averaged.validation);
    config.training.optimizer.ema_decay = 0;
    expect_equal(one_process(config, corpus).checkpoint.model, weights.checkpoint.model);
  }
}

struct DividedCase {
  const char* name;
  Shape shape;
  int64_t zero = 0;
  AmpMode mode = AmpMode::autocast;
};

void PrintTo(const DividedCase& divided, std::ostream* out) { *out << divided.name; }

class DividedAverages : public testing::TestWithParam<DividedCase> {};

// Among them what the evaluation of one process finds.
TEST_P(DividedAverages, AreThoseOfOneProcessToTheBit) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = averaged_run(corpus);
  if (GetParam().mode == AmpMode::end_to_end) use_bfloat16(config, AmpMode::end_to_end);
  const Outcome one = one_process(config, corpus);
  config.distributed.zero = GetParam().zero;
  const Outcome divided = outcomes_on(GetParam().shape, config, corpus)[0];
  EXPECT_EQ(divided.validation, one.validation);
  expect_same_state(divided.checkpoint, one.checkpoint);
}

INSTANTIATE_TEST_SUITE_P(All, DividedAverages,
                         testing::Values(DividedCase{"two_processes", {2, 1}}, DividedCase{"zero_1", {2, 1}, 1},
                                         DividedCase{"zero_2", {2, 1}, 2}, DividedCase{"zero_3", {2, 1}, 3},
                                         DividedCase{"zero_1_end_to_end", {2, 1}, 1, AmpMode::end_to_end},
                                         DividedCase{"zero_3_end_to_end", {2, 1}, 3, AmpMode::end_to_end}),
                         [](const auto& test) { return std::string(test.param.name); });

// Until they begin they are the weights, so that each value shows whether it came to its place, also beside moments that are rounded anew.
TEST(Averages, OfPartsComeTogether) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = averaged_run(corpus);
  config.distributed.lanes = DistributedConfig().lanes;
  config.training.optimizer.average_after = 0.99;
  for (const StateDtype dtype : {StateDtype::float32, StateDtype::int8}) {
    config.training.optimizer.state_dtype = dtype;
    for (const Shape& shape : {Shape{2, 2}, Shape{4, 2, 2}, Shape{2, 1, 2}}) {
      const checkpoint::Checkpoint checkpoint = outcomes_on(shape, config, corpus)[0].checkpoint;
      expect_equal(checkpoint.optimizer.slot(optim::kAverageSlot), checkpoint.model);
      const checkpoint::Checkpoint read = outcomes_on(shape, config, corpus, checkpoint)[0].checkpoint;
      expect_equal(read.optimizer.slot(optim::kAverageSlot), checkpoint.model);
    }
  }
}

// Saved where the averages differ from the weights.
TEST(Averages, GoOnToTheBit) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = averaged_run(corpus);
  for (const int64_t rank : {0, 2}) {
    config.training.tuning.lora.rank = rank;
    const Outcome straight = one_process(config, corpus);
    checkpoint::Checkpoint saved;
    in_mesh({1, 1}, config, corpus, [&](const run::Setup& setup) {
      run::Run run(setup);
      while (run.state().step < kHalf) EXPECT_TRUE(run.update(kGoesOn));
      saved = copy_of_whole(run.state(), setup);
    });
    const Outcome resumed = one_process(config, corpus, saved);
    expect_same_state(resumed.checkpoint, straight.checkpoint);
    EXPECT_EQ(resumed.validation, straight.validation);
  }
}

TEST(Averages, BeginWithTheWeightsOfACheckpointWithout) {
  const data::Corpus corpus = corpus_with_validation();
  Config config = averaged_run(corpus), plain = config;
  plain.training.optimizer.ema_decay = 0, plain.training.cadence.evaluates = EvaluatedWeights::weights;
  const checkpoint::Checkpoint without = one_process(plain, corpus).checkpoint;
  test::CapturedLog log;
  const checkpoint::Checkpoint begun = one_process(config, corpus, without).checkpoint;
  EXPECT_NE(log.text().find("they begin with its weights"), std::string::npos);
  expect_equal(begun.optimizer.slot(optim::kAverageSlot), without.model);
  test::CapturedLog of_plain;
  EXPECT_TRUE(one_process(plain, corpus, begun).checkpoint.optimizer.slot(optim::kAverageSlot).empty());
  EXPECT_NE(of_plain.text().find("are dropped"), std::string::npos);
}

TEST(Averages, AreTakenBackWithTheWeights) {
  const data::Corpus corpus = corpus_with_validation();
  const Config config = averaged_run(corpus);
  in_mesh({1, 1}, config, corpus, [&](const run::Setup& setup) {
    run::Run run(setup);
    while (run.state().step < kHalf) EXPECT_TRUE(run.update(kGoesOn));
    const checkpoint::Checkpoint good = copy_of_whole(run.state(), setup);
    while (run.state().step < kAll) EXPECT_TRUE(run.update(kGoesOn));
    run.state().go_back(good);
    expect_same_state(run.state().capture(), good);
  });
}

}  // namespace
}  // namespace gpt::run
