// A whole run, with all that happens in it. Its parts on every device and in every precision: recorded_run_test.cpp.
#include "gpt/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/child_process.h"
#include "core/scratch_folder.h"
#include "gpt/core/process.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace gpt::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLast = 20, kStopped = 8;

// What a run said that must not depend on how it came about.
class Notes : public report::Listener {
 public:
  Notes(std::vector<std::string>& lines, int64_t stop_after) : lines_(lines), stop_after_(stop_after) {}

  void step(const report::StepRecord& record) override {
    note(record.step, fmt::format("loss {} norm {}", record.loss, record.grad_norm));
    if (record.step != stop_after_) return;
    kill(getpid(), SIGTERM);
    while (process::stop_signal() == 0) usleep(100);
  }
  void evaluation(const report::EvaluationRecord& record) override {
    note(record.step, fmt::format("validation {} {}", record.loss, record.is_best));
  }
  void sample(const report::SampleRecord& record) override { note(record.step, record.text); }
  void event(const report::EventRecord& record) override {
    if (const std::string name = fs::path(record.what).filename(); name != checkpoint::kLastCheckpoint)
      note(record.step, name);
  }

 private:
  void note(int64_t step, const std::string& what) { lines_.push_back(fmt::format("{}: {}", step, what)); }

  std::vector<std::string>& lines_;
  const int64_t stop_after_;
};

// Another process changes a file, after a step that no batch of it follows.
class Overwrites : public report::Listener {
 public:
  Overwrites(std::string path, int64_t after) : path_(std::move(path)), after_(after) {}
  void step(const report::StepRecord& record) override {
    if (record.step != after_) return;
    std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary) << std::string(fs::file_size(path_), '\xff');
    fs::last_write_time(path_, fs::file_time_type::clock::now() + std::chrono::hours(1));  // clocks may be coarse
  }

 private:
  const std::string path_;
  const int64_t after_;
};

// Somebody moves the folder of the run, after a step.
class Moves : public report::Listener {
 public:
  Moves(std::string from, std::string to, int64_t after) : from_(std::move(from)), to_(std::move(to)), after_(after) {}
  void step(const report::StepRecord& record) override {
    if (record.step == after_) fs::rename(from_, to_);
  }

 private:
  const std::string from_, to_;
  const int64_t after_;
};

class TrainerTest : public testing::Test {
 protected:
  void SetUp() override {
    corpus_.validation = corpus_.train;
    config_ = tiny_config(corpus_);
    config_.training.batch_size = 3;  // the epoch has 8 samples: every third batch has only two
    config_.training.schedule.max_steps = kLast;
    config_.training.schedule.learning_rate = 1e-2;
    CadenceConfig& cadence = config_.training.cadence;
    cadence.log_interval = 1;
    cadence.eval_interval = {4, Interval::Unit::steps};
    cadence.eval_batches = 0;
    cadence.checkpoint_interval = {5, Interval::Unit::steps};
    cadence.keep_last = 2;
    cadence.sample_interval = {3, Interval::Unit::steps};
    cadence.sample_prompt = "1 is";
    cadence.sample_tokens = 12;  // more than the context holds
    config_.training.precision.use_amp = false;
  }

  ExitCode run(const std::string& folder_path, bool is_recorded, int64_t stop_after = 0) {
    return run(folder_path, is_recorded, std::make_unique<Notes>(lines_, stop_after));
  }
  ExitCode run(const std::string& folder_path, bool is_recorded, std::unique_ptr<report::Listener> listener) {
    const run::Folder folder(folder_path);
    const run::Beginning begins{folder.find_start("auto", /*restart=*/false).start, {}};
    const run::Setup setup{config_, corpus_, device_, device::Precision{}};
    report::Listeners listeners;
    listeners.add(std::move(listener), "notes");
    run::Run run(setup, begins, [&](model::GPT& model) {
      return is_recorded ? test::counting_recorder(model, replays_) : run::Recorder();
    });
    return Trainer(run, folder, listeners, /*is_saved=*/begins.start.has_value()).run();
  }

  void expect_same(const std::string& path, const std::string& expected_path) const {
    const checkpoint::Checkpoint found = checkpoint::load_checkpoint(path),
                                 expected = checkpoint::load_checkpoint(expected_path);
    expect_same_weights_and_moments(found, expected);
    EXPECT_EQ(found.step, expected.step);
    EXPECT_EQ(found.evaluated_step, expected.evaluated_step);
    EXPECT_EQ(found.best_val_loss, expected.best_val_loss);
    EXPECT_EQ(found.data_round, expected.data_round);
    EXPECT_EQ(found.data_sample, expected.data_sample);
    EXPECT_TRUE(found.rng.at("cpu").equal(expected.rng.at("cpu")));
  }

  ScratchFolder root_;
  data::Corpus corpus_ = some_corpus(3);
  Config config_;
  device::DeviceInfo device_ = device::describe_device(at::kCPU);
  std::vector<std::string> lines_;
  int64_t replays_ = 0;
};

// It is stopped where an evaluation is due, which waits for the run to resume.
TEST_F(TrainerTest, ARecordedRunThatStopsAndResumesIsTheOneThatDoesNeither) {
  const ChildResult child = run_child([this] {  // a signal is for the whole process
    at::set_num_threads(1);  // a forked child has none of the threads that its parent may have started
    process::watch_signals();
    EXPECT_EQ(run(root_ / "whole", /*is_recorded=*/false), ExitCode::ok);
    const std::vector<std::string> expected = std::exchange(lines_, {});
    EXPECT_EQ(static_cast<int>(run(root_ / "parts", /*is_recorded=*/true, kStopped)), 128 + SIGTERM);
    EXPECT_GT(replays_, 0);
    process::forget_stop_signal();
    EXPECT_EQ(run(root_ / "parts", /*is_recorded=*/true), ExitCode::ok);
    EXPECT_EQ(lines_, expected);
    EXPECT_GT(std::ssize(expected), kLast + kLast / 4 + kLast / 3 + kLast / 5);
    for (const std::string& name : {std::string(checkpoint::kLastCheckpoint), std::string(checkpoint::kBestCheckpoint),
                                    checkpoint::numbered_checkpoint(15), checkpoint::numbered_checkpoint(kLast)})
      expect_same(root_ / ("parts/" + name), root_ / ("whole/" + name));
    return static_cast<int>(HasFailure());
  });
  EXPECT_EQ(child.status, 0) << child.errors;
}

TEST_F(TrainerTest, ValidationTokensThatBecomeNoneStopTheRunAsChangedData) {
  std::string bytes;
  for (int64_t i = 0; i < corpus_.train.size(); ++i) bytes += {static_cast<char>(corpus_.train[i]), '\0'};
  const std::string path = root_.file("validation.bin", bytes);
  corpus_.validation = data::open_token_file(path, 2).tokens;
  config_.training.cadence.eval_interval = {
      3, Interval::Unit::steps};  // within an epoch, at whose end files are looked at
  EXPECT_ERROR(run(root_ / "run", /*is_recorded=*/false, std::make_unique<Overwrites>(path, 3)), ExitCode::data,
               path + " was changed while it was in use");
  EXPECT_EQ(checkpoint::load_checkpoint(root_ / "run/ckpt.pt").step, 3);
}

struct Heard {
  std::vector<double> losses, means, rates, norms;  // losses, rates and norms of updates, means of epochs
  std::vector<int64_t> tokens;                      // up to each update
};

class Hears : public report::Listener {
 public:
  explicit Hears(Heard& heard) : heard_(heard) {}
  void step(const report::StepRecord& record) override { hear(record); }
  void losses(const std::vector<report::LossRecord>& records) override {
    for (const report::LossRecord& record : records) hear(record);
  }
  void epoch(const report::EpochRecord& record) override { heard_.means.push_back(record.mean_loss); }

 private:
  template <class Record>
  void hear(const Record& record) {
    heard_.losses.push_back(record.loss);
    heard_.rates.push_back(record.learning_rate);
    heard_.norms.push_back(record.grad_norm);
    heard_.tokens.push_back(record.at.tokens);
  }

  Heard& heard_;
};

TEST_F(TrainerTest, TheMeanLossOfAnEpochIsThatOfItsTokens) {
  Heard heard;
  EXPECT_EQ(run(root_ / "run", /*is_recorded=*/false, std::make_unique<Hears>(heard)), ExitCode::ok);
  // An update of two whole batches, and a smaller one of what is left.
  ASSERT_EQ(std::ssize(heard.means), kLast / 2);
  int64_t before = 0;
  for (size_t i = 0; i < heard.means.size(); ++i) {
    const auto first = static_cast<double>(heard.tokens[2 * i] - before),
               second = static_cast<double>(heard.tokens[2 * i + 1] - heard.tokens[2 * i]);
    before = heard.tokens[2 * i + 1];
    EXPECT_LT(second, first);
    EXPECT_NEAR(heard.means[i], (first * heard.losses[2 * i] + second * heard.losses[2 * i + 1]) / (first + second),
                1e-6 * heard.means[i]);
  }
}

TEST_F(TrainerTest, EveryLossRateAndNormIsToldOnceWhateverTheLogInterval) {
  Heard each, some;
  EXPECT_EQ(run(root_ / "each", /*is_recorded=*/false, std::make_unique<Hears>(each)), ExitCode::ok);
  config_.training.cadence.log_interval = 7;
  EXPECT_EQ(run(root_ / "some", /*is_recorded=*/true, std::make_unique<Hears>(some)), ExitCode::ok);
  EXPECT_EQ(some.losses, each.losses);
  EXPECT_EQ(some.tokens, each.tokens);
  EXPECT_EQ(some.rates, each.rates);
  EXPECT_EQ(some.norms, each.norms);
  for (const double norm : some.norms) EXPECT_GT(norm, 0);
  EXPECT_EQ(std::ssize(some.losses), kLast);
}

class HearsSteps : public report::Listener {
 public:
  explicit HearsSteps(std::vector<report::StepRecord>& steps) : steps_(steps) {}
  void step(const report::StepRecord& record) override { steps_.push_back(record); }

 private:
  std::vector<report::StepRecord>& steps_;
};

// Each weight of a product costs a token 6 FLOPs, and attention 12 for each layer, column and position.
TEST_F(TrainerTest, UtilizationIsTheShareOfTheStatedPeak) {
  std::vector<report::StepRecord> steps;
  EXPECT_EQ(run(root_ / "cpu", /*is_recorded=*/false, std::make_unique<HearsSteps>(steps)), ExitCode::ok);
  for (const report::StepRecord& step : steps) EXPECT_FALSE(step.mfu) << "no data sheet says what this CPU can do";
  steps.clear();
  device_.name = "NVIDIA H100 80GB HBM3";
  EXPECT_EQ(run(root_ / "gpu", /*is_recorded=*/false, std::make_unique<HearsSteps>(steps)), ExitCode::ok);
  const int64_t C = 16, T = 8, L = 2, F = config_.model.hidden(), V = config_.model.padded_vocab();
  const double per_token = 6.0 * static_cast<double>(V * C + L * (4 * C * C + 3 * C * F) + (2 * L + 1) * C) +
                           12.0 * static_cast<double>(L * C * T);
  ASSERT_EQ(std::ssize(steps), kLast);
  for (const report::StepRecord& step : steps) {
    ASSERT_TRUE(step.mfu);
    EXPECT_NEAR(*step.mfu, step.tokens_per_second * per_token / 66.9e12, 1e-9 * *step.mfu);
  }
}

// A learning rate of 0 brings no second best.
TEST_F(TrainerTest, PatienceEndsARunAndCountsOnWhereItResumes) {
  CadenceConfig& cadence = config_.training.cadence;
  config_.training.schedule.learning_rate = config_.training.schedule.min_lr = 0;
  cadence.eval_interval = {2, Interval::Unit::steps};
  cadence.patience = 3;
  EXPECT_EQ(run(root_ / "run", /*is_recorded=*/false), ExitCode::ok);
  EXPECT_EQ(checkpoint::load_checkpoint(root_ / "run/ckpt.pt").step, 8);
  EXPECT_EQ(checkpoint::load_checkpoint(root_ / "run/ckpt_best.pt").step, 2);
  cadence.patience = 5;
  EXPECT_EQ(run(root_ / "run", /*is_recorded=*/false), ExitCode::ok);
  EXPECT_EQ(checkpoint::load_checkpoint(root_ / "run/ckpt.pt").step, 12);
  cadence.patience = 0;
  EXPECT_EQ(run(root_ / "run", /*is_recorded=*/false), ExitCode::ok);
  EXPECT_EQ(checkpoint::load_checkpoint(root_ / "run/ckpt.pt").step, kLast);
}

TEST_F(TrainerTest, ARunWhoseFolderIsMovedSavesThereAndEnds) {
  EXPECT_ERROR(run(root_ / "run", /*is_recorded=*/false, std::make_unique<Moves>(root_ / "run", root_ / "moved", 7)),
               ExitCode::disk, "it is now " + fs::canonical(root_.path()).string() + "/moved): step 8 is saved in ");
  EXPECT_EQ(checkpoint::load_checkpoint(root_ / "moved/ckpt.pt").step, 8);
  EXPECT_FALSE(fs::exists(root_ / "run"));
}

TEST_F(TrainerTest, ARunThatGoesWrongSaysWhichCheckpointIsLeft) {
  TrainingConfig& training = config_.training;
  training.schedule.learning_rate = 1e30;  // weights that no later loss is finite with
  training.schedule.warmup_steps = 0;
  training.cadence.max_skipped_steps = 2;
  training.cadence.eval_interval = {};
  training.cadence.sample_interval = {};
  for (const int64_t interval : {0, 1}) {
    training.cadence.checkpoint_interval = {interval, Interval::Unit::steps};
    EXPECT_ERROR(run(root_ / std::to_string(interval), /*is_recorded=*/false, std::make_unique<report::Listener>()),
                 ExitCode::numerics,
                 interval == 0 ? "(nothing was saved before)" : "(the checkpoint of step 1 is kept)");
  }
}

}  // namespace
}  // namespace gpt::train
