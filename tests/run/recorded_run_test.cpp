// A run whose steps are recorded is the run without a recorder, to the bit: with validation and samples between the steps, other
// shapes of batches, a stop in the middle of an update, and resumed.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "gpt/generate/generator.h"
#include "gpt/run/evaluator.h"
#include "support/device_cases.h"
#include "support/restore_context.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

// 66 tokens: 8 samples of 8 tokens, so that every third batch of three has only two of them.
constexpr int kLines = 3;
constexpr int64_t kBatch = 3, kLast = 26, kStopped = 12, kSecondStage = 7;

struct RunCase {
  const char* name;
  Dtype dtype = Dtype::float32;
  bool has_stages = false;
  GradientCheckpointing gradient_checkpointing = GradientCheckpointing::none;
};

void PrintTo(const RunCase& c, std::ostream* out) { *out << c.name; }

constexpr RunCase kRunCases[] = {{.name = "epochs"},
                                 {.name = "stages", .has_stages = true},
                                 {.name = "recomputed",
                                  .has_stages = true,
                                  .gradient_checkpointing = GradientCheckpointing::norm},
                                 {.name = "end_to_end", .dtype = Dtype::bfloat16},
                                 {.name = "end_to_end_stages", .dtype = Dtype::bfloat16, .has_stages = true},
                                 {.name = "float16", .dtype = Dtype::float16}};

// What a run gave besides its state.
struct Results {
  std::vector<double> losses, validation;
  std::vector<std::string> samples;
};

class RecordedRun : public testing::TestWithParam<std::tuple<DeviceCase, RunCase>> {
 protected:
  void SetUp() override {
    GPT_SKIP_WITHOUT(std::get<0>(GetParam()));
    const auto& [where, what] = GetParam();
    if (what.dtype == Dtype::float16 && device().is_cpu()) GTEST_SKIP() << "float16 is refused on a CPU";
    device::use_recordable_stream(device());
    at::set_num_threads(1);  // on a busy machine threads meet more slowly than this model computes
    path_ = testing::TempDir() + "recorded_run_" + std::to_string(getpid()) + ".pt";
    corpus_.validation = corpus_.train;
    config_ = tiny_config(corpus_);
    config_.training.batch_size = kBatch;
    config_.training.schedule.max_steps = kLast;
    config_.training.execution.gradient_checkpointing = what.gradient_checkpointing;
    config_.training.precision = {.use_amp = what.dtype != Dtype::float32, .dtype = what.dtype};
    if (what.dtype == Dtype::bfloat16) config_.training.precision.amp_mode = AmpMode::end_to_end;
    if (what.has_stages) config_.data.stages = {{}, {.from = kSecondStage, .block_size = 4, .mix = {}}};
    precision_ = device::resolve_precision(config_.training.precision, device::describe_device(device()));
    device::apply_precision(precision_, /*deterministic=*/true);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  at::Device device() const { return std::get<0>(GetParam()).device; }

  // With validation after every second update, and a sample after every third.
  void train_to(int64_t last, TinyRun& run, Results& results) const {
    Evaluator evaluator(corpus_, {kBatch, config_.model.block_size}, {.eval_batches = 0}, device(), precision_);
    while (run.state.step < last) {
      results.losses.push_back(run.train_to(run.state.step + 1).back());
      if (run.state.step % 2 == 0)
        results.validation.push_back(evaluator.run(run.state.model, [](double) { return false; }).loss);
      if (run.state.step % 3 == 0) results.samples.push_back(sample(run.state.model));
    }
  }
  std::string sample(model::GPT& model) const {
    generate::SamplingConfig sampling;
    sampling.max_new_tokens = 12;  // more than the context holds
    return generate::generate(model, *corpus_.tokenizer, "1 is", sampling, precision_.compute_type()).text;
  }

  // As a signal does, between two micro-batches.
  void stop_in_an_update(TinyRun& run) const {
    const State::Cursor before = run.state.cursor();
    EXPECT_FALSE(run_update(run.step, run.state.loader, run.micro_batches, 1e-2, run.state.step, [] { return true; }));
    run.state.rewind(before);
  }

  void finish(TinyRun& run, Results results, const Results& expected, const checkpoint::Checkpoint& state) const {
    train_to(kLast - 1, run, results);
    const int64_t replays = run.replays;
    train_to(kLast, run, results);
    EXPECT_EQ(run.replays - replays, run.micro_batches + 1) << "not all of the last update was recorded";
    EXPECT_EQ(results.losses, expected.losses);
    EXPECT_EQ(results.validation, expected.validation);
    EXPECT_EQ(results.samples, expected.samples);
    const checkpoint::Checkpoint found = run.state.capture();
    expect_same_weights_and_moments(found, state);
    EXPECT_EQ(found.skipped_steps, state.skipped_steps);
    for (const auto& [name, random] : state.rng) EXPECT_TRUE(found.rng.at(name).equal(random)) << name;
  }

  data::Corpus corpus_ = some_corpus(kLines);
  Config config_;
  device::Precision precision_;
  std::string path_;
  RestoreContext restore_;
};

TEST_P(RecordedRun, IsTheRunWithoutARecorder) {
  Results expected, results;
  TinyRun eager(config_, corpus_, device(), precision_);
  train_to(kLast, eager, expected);
  const checkpoint::Checkpoint state = eager.state.capture();

  TinyRun stopped(config_, corpus_, device(), precision_, /*start=*/nullptr, /*is_recorded=*/true);
  train_to(kStopped, stopped, results);
  EXPECT_GT(stopped.replays, 0);
  stop_in_an_update(stopped);
  checkpoint::save_checkpoint(path_, stopped.state.capture());
  finish(stopped, results, expected, state);

  const StartingPoint start{.checkpoint = checkpoint::load_checkpoint(path_), .path = path_};
  TinyRun resumed(config_, corpus_, device(), precision_, &start, /*is_recorded=*/true);
  finish(resumed, results, expected, state);
}

INSTANTIATE_TEST_SUITE_P(Devices, RecordedRun,
                         testing::Combine(testing::ValuesIn(kDevices), testing::ValuesIn(kRunCases)),
                         [](const auto& test) {
                           return std::string(std::get<1>(test.param).name) + "_" + std::get<0>(test.param).name;
                         });

}  // namespace
}  // namespace gpt::run
