// A run that several processes compute is the run of one.
#include "gpt/run/division.h"

#include <gtest/gtest.h>

#include <limits>

#include "distributed/local_group.h"
#include "gpt/config/batch.h"
#include "gpt/run/decisions.h"
#include "gpt/run/run.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

// 5 micro-batches an update and 3 in the last of an epoch, so that processes have different numbers of them, and some none.
Config config_with(const Corpus& corpus, const DistributedConfig& distributed) {
  Config config = tiny_config(corpus);
  config.training.batch_size = 3;
  config.training.gradient_accumulation_steps = 5;
  config.training.schedule.max_steps = 50;
  config.training.schedule.warmup_steps = 5;
  config.training.schedule.learning_rate = 1e-2;
  config.training.precision.use_amp = false;
  config.distributed = distributed;
  return config;
}

DistributedConfig with_lanes(int64_t lanes) {
  DistributedConfig config;
  config.lanes = lanes;
  return config;
}

DistributedConfig sent_in(ReduceDtype type) {
  DistributedConfig config;
  config.reduce_dtype = type;
  return config;
}

struct Result {
  NamedTensors weights;
  std::vector<double> losses, norms;
  Evaluation evaluation;
};

Result result_of(const Setup& setup, int64_t updates) {
  Run run(setup);
  Result result;
  for (int64_t i = 0; i < updates; ++i) {
    EXPECT_TRUE(run.update([] { return false; }));
    result.losses.push_back(run.step().loss().item<double>());
    result.norms.push_back(run.step().grad_norm().item<double>());
  }
  for (const auto& [name, value] : run.model().parameters().values())
    result.weights.emplace_back(name, value.detach().clone());
  result.evaluation = run.evaluator().run(run.model(), [](double) { return false; });
  return result;
}

Corpus even_corpus() {
  Corpus corpus = some_corpus();
  corpus.validation = corpus.train;
  return corpus;
}

// Its sequences have so different losses that an evaluation draws again, and there are enough to draw from.
Corpus uneven_corpus() {
  Corpus corpus = some_corpus(400);
  std::vector<int32_t> ids;
  const int32_t common = corpus.train[4], rare = static_cast<int32_t>(corpus.vocab_size) - 1;
  for (int64_t i = 0; i < 40000; ++i) ids.push_back(i / 8 % 3 == 0 ? rare : common);
  corpus.validation = Tokens::from_ids(ids, corpus.vocab_size);
  return corpus;
}

// What each process has at the end.
std::vector<Result> results_of(int64_t processes, const DistributedConfig& distributed, int64_t updates,
                               const Corpus& corpus = even_corpus()) {
  const Config config = config_with(corpus, distributed);
  std::vector<Result> results(static_cast<size_t>(processes));
  test::in_ranks(processes, [&](const distributed::Group& group) {
    Setup setup{config, corpus, describe_device(at::kCPU), Precision{}};
    setup.ranks = group.communicator();
    results[static_cast<size_t>(group.ranks().rank)] = result_of(setup, updates);
  });
  return results;
}

TEST(Division, LanesGiveTheSameBitsOnAnyNumberOfProcesses) {
  constexpr int64_t kAll = 50;  // more than an epoch
  const Result one = results_of(1, with_lanes(4), kAll)[0];
  for (const int64_t processes : {2, 4}) {
    for (const Result& result : results_of(processes, with_lanes(4), kAll)) {
      expect_equal(result.weights, one.weights);
      EXPECT_EQ(result.losses, one.losses) << processes;
      EXPECT_EQ(result.evaluation.loss, one.evaluation.loss) << processes;
    }
  }
}

// Without lanes the sums are those of as many parts as there are processes: the same up to rounding. Compared are those of the first update,
// whose weights are the same.
TEST(Division, WithoutLanesTheFirstSumsDifferByRounding) {
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon(), kWireEpsilon = 0x1p-8;
  const Result one = results_of(1, {}, 1)[0];
  for (const ReduceDtype wire : {ReduceDtype::float32, ReduceDtype::bfloat16}) {
    const std::vector<Result> three = results_of(3, sent_in(wire), 1);
    for (const Result& result : three) {
      expect_equal(result.weights, three[0].weights);                              // all processes have the same
      EXPECT_NEAR(result.losses[0], one.losses[0], 5 * kEpsilon * one.losses[0]);  // five additions
      // Each part is rounded when it is sent, and their sum again; every value of the norm by so much at most.
      const double rounding = wire == ReduceDtype::float32 ? 5 * kEpsilon : 2 * kWireEpsilon;
      EXPECT_NEAR(result.norms[0], one.norms[0], 2 * rounding * one.norms[0]);
    }
  }
}

TEST(Division, AnEvaluationThatDrawsMoreCountsEachSequenceOnce) {
  constexpr int64_t kUpdates = 50;  // until losses differ
  const Corpus corpus = uneven_corpus();
  const Evaluation one = results_of(1, with_lanes(2), kUpdates, corpus)[0].evaluation;
  EXPECT_GT(one.sequences, 102);  // what it draws at first, in whole batches
  for (const Result& result : results_of(2, with_lanes(2), kUpdates, corpus)) {
    EXPECT_EQ(result.evaluation.sequences, one.sequences);
    EXPECT_EQ(result.evaluation.loss, one.loss);
  }
}

double bytes_per_update(const Setup& setup, int64_t updates) {
  Run run(setup);
  const int64_t before = setup.ranks->bytes_sent();
  for (int64_t i = 0; i < updates; ++i) EXPECT_TRUE(run.update([] { return false; }));
  return static_cast<double>(setup.ranks->bytes_sent() - before) / static_cast<double>(updates);
}

// An update sends the gradients twice, but for the part that a process adds up itself; a decision and a loss are small.
TEST(Division, AnUpdateSendsTheGradientsToThoseThatAddThemAndBack) {
  constexpr int64_t kProcesses = 4;
  const Corpus corpus = even_corpus();
  const Config config = config_with(corpus, {});
  const auto gradients =
      static_cast<double>(sizeof(float)) * static_cast<double>(flat_layout(parameter_table(config.model)).size);
  test::in_ranks(kProcesses, [&](const distributed::Group& group) {
    run::Setup setup{config, corpus, describe_device(at::kCPU), Precision{}};
    setup.ranks = group.communicator();
    constexpr double kLoss = 2 * 3 * sizeof(float);  // padded to a number for each process, and sent like gradients
    EXPECT_EQ(bytes_per_update(setup, 3), 2 * gradients * (kProcesses - 1) / kProcesses + kLoss);
  });
}

TEST(Division, AStopInOneProcessStopsAllAtTheSamePoint) {
  std::vector<int64_t> stopped_at(3, -1);
  test::in_ranks(3, [&](const distributed::Group& group) {
    Decisions decisions(group.communicator());
    const int64_t rank = group.ranks().rank;
    for (int64_t point = 0; point < 10; ++point) {
      const Decision decision = decisions.agree({.stop_signal = rank == 1 && point >= 4 ? 15 : 0});
      if (!decision.stops()) continue;
      EXPECT_EQ(decision.stop_signal, 15);
      stopped_at[static_cast<size_t>(rank)] = point;
      return;
    }
  });
  EXPECT_EQ(stopped_at, (std::vector<int64_t>{5, 5, 5}));  // one point later, so that nobody waits
}

TEST(Division, OneProcessDecidesAtOnce) {
  Decisions decisions(distributed::alone());
  EXPECT_TRUE(decisions.agree({.lacks_memory = true}).stops());
  EXPECT_FALSE(decisions.agree({.saves = true}).stops());
}

}  // namespace
}  // namespace gpt::run
