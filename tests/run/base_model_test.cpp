// A checkpoint of adapters names the model that they go with, and is put together with it wherever it is read.
#include "gpt/checkpoint/base.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/checkpoint/adapters.h"
#include "gpt/checkpoint/averages.h"
#include "gpt/core/file.h"
#include "support/expect_error.h"
#include "support/restore_context.h"
#include "train/tiny_run.h"

namespace gpt::run {
namespace {

namespace fs = std::filesystem;

class BaseModelTest : public testing::Test {
 protected:
  BaseModelTest() {
    at::set_num_threads(1);
    device::apply_precision({}, /*deterministic=*/true);
    config_ = tiny_config(corpus_);
    TinyRun trained(config_, corpus_, at::kCPU, device::Precision{});
    trained.train_to(2);
    base_values_ = trained.state.capture().model;
    checkpoint::save_checkpoint(base_, trained.state.capture());
    fs::create_directories(root_ / "run");
    config_.training.init_from = base_;
    config_.training.tuning.lora.rank = 2;
  }

  struct Adapted {
    Adapted(const Config& config, const data::Corpus& corpus, Beginning begins)
        : state(config, corpus, at::kCPU, device::Precision{}, std::move(begins)),
          step({state.model, *state.optimizer, state.scaler, state.counts(), state.watch()},
               {device::Precision{}, state.dropout_seed()}, config.training, Recorder(), {}) {}

    std::vector<double> train_to(int64_t last) {
      std::vector<double> losses;
      for (; state.step < last; ++state.step) {
        run_update(step, state.loader, 2, /*learning_rate=*/1e-2, state.step, [] { return false; });
        losses.push_back(step.loss().item<double>());
      }
      return losses;
    }
    State state;
    TrainStep step;
  };

  Adapted begun() const { return {config_, corpus_, {.start = {}, .initial = read_initial_weights(config_, {})}}; }
  Adapted resumed() const {
    return {config_,
            corpus_,
            {.start = StartingPoint{.checkpoint = checkpoint::load_checkpoint(path_), .path = path_}, .initial = {}}};
  }
  void save_begun() const { checkpoint::save_checkpoint(path_, begun().state.capture()); }

  RestoreContext restore_;
  const ScratchFolder root_;
  const std::string base_ = fs::weakly_canonical(root_.file("base/ckpt.pt", "")).string(),
                    path_ = (fs::weakly_canonical(fs::path(root_ / "")) / "run/ckpt.pt").string();
  const data::Corpus corpus_ = some_corpus();
  Config config_;
  parameters::NamedTensors base_values_;
};

TEST_F(BaseModelTest, ARunThatTakesTheWeightsLeavesTheirPlaceAndLearnsTheSame) {
  const std::vector<double> expected = begun().train_to(3);
  Beginning begins{.start = {}, .initial = read_initial_weights(config_, {})};
  const c10::weak_intrusive_ptr<c10::TensorImpl> table(begins.initial->model[0].second.getIntrusivePtr());
  Adapted adapted(config_, corpus_, begins.take_tensors());
  EXPECT_TRUE(table.expired());
  EXPECT_EQ(begins.initial->path, base_);
  EXPECT_TRUE(begins.initial->base);
  EXPECT_EQ(adapted.train_to(3), expected);
}

TEST_F(BaseModelTest, AFileHasWhatIsTrainedAndIsTheWholeRunWhenItIsRead) {
  for (const BaseType type : {BaseType::automatic, BaseType::bfloat16, BaseType::int8, BaseType::int4}) {
    SCOPED_TRACE(static_cast<int>(type));
    config_.training.tuning.lora.base = type;
    Adapted whole = begun();
    whole.train_to(kStop);
    const checkpoint::Checkpoint captured = whole.state.capture();
    for (const auto& [name, tensor] : captured.model) EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
    checkpoint::save_checkpoint(path_, captured);
    checkpoint::Checkpoint
        expected;  // what any program has of it: the weights as they were before any were packed, and the adapters' sums
    expected.config = config_, expected.model = base_values_;
    for (const auto& [name, adapter] : captured.model) expected.model.emplace_back(name, adapter.detach().clone());
    checkpoint::merge_adapters(expected);
    const std::vector<double> losses = whole.train_to(kUpdates);

    Adapted again = resumed();
    EXPECT_EQ(again.train_to(kUpdates), losses);
    expect_same_weights_and_moments(again.state.capture(), whole.state.capture());

    const checkpoint::Checkpoint merged = checkpoint::load_checkpoint(path_, checkpoint::Parts::model);
    expect_equal(merged.model, expected.model);
    EXPECT_FALSE(merged.base || merged.config.training.tuning.lora.is_on()) << "it is a model of its own now";
    EXPECT_EQ(checkpoint::load_checkpoint(path_, checkpoint::Parts::model_and_adapters).model.size(),
              base_values_.size() + 2 * 2 * 5);
  }
}

TEST_F(BaseModelTest, WhatIsReadIsWrittenAsItWas) {
  for (const BaseType type : {BaseType::automatic, BaseType::int4}) {
    config_.training.tuning.lora.base = type;
    save_begun();
    const checkpoint::Checkpoint read = checkpoint::load_checkpoint(path_);
    EXPECT_EQ(read.from_base.size(), base_values_.size());
    EXPECT_EQ(read.frozen.empty(), type == BaseType::automatic);
    EXPECT_EQ(checkpoint::python_view_of(path_, read), checkpoint::PythonView::ours);
    checkpoint::save_checkpoint(path_ + "2", read);
    EXPECT_EQ(read_file(path_ + "2", ExitCode::checkpoint), read_file(path_, ExitCode::checkpoint));
  }
}

TEST_F(BaseModelTest, ABaseThatWasMovedIsKnownByItsHash) {
  save_begun();
  const auto expect_found = [this](const std::string& at) {
    const checkpoint::Checkpoint read = checkpoint::load_checkpoint(path_);
    EXPECT_EQ(read.base->path, at);
    EXPECT_EQ(read.model.size(), base_values_.size() + 2 * 2 * 5);
  };
  expect_found(base_);
  const fs::path folder = fs::path(path_).parent_path();
  fs::rename(fs::path(base_).parent_path(), folder / "base");  // its folder, into that of the run
  expect_found(folder / "base/ckpt.pt");
  fs::rename(folder / "base/ckpt.pt", folder / "base.pt");
  expect_found(folder / "base.pt");
  fs::create_directories(folder.parent_path() / "base");
  fs::rename(folder / "base.pt", folder.parent_path() / "base/ckpt.pt");
  fs::rename(folder, folder.parent_path() / "moved");  // with the run
  const checkpoint::Checkpoint read = checkpoint::load_checkpoint(folder.parent_path() / "moved/ckpt.pt");
  EXPECT_EQ(read.base->path, base_);
}

TEST_F(BaseModelTest, ABaseThatHasChangedOrIsGoneIsRefused) {
  save_begun();
  const auto past = fs::last_write_time(base_) - std::chrono::hours(1);
  fs::last_write_time(base_, past);
  EXPECT_EQ(checkpoint::load_checkpoint(path_).base->path, base_) << "only its time is another one";
  checkpoint::Checkpoint other = checkpoint::load_checkpoint(base_);
  other.step += 1;
  checkpoint::save_checkpoint(base_, other);
  EXPECT_ERROR((void)checkpoint::load_checkpoint(path_), ExitCode::checkpoint,
               fmt::format("{} cannot be used: it has adapters alone, of the model {}, which has changed since the run "
                           "began, and beside {} there is none with its hash (",
                           path_, base_, path_));
  for (const checkpoint::Parts parts : {checkpoint::Parts::model, checkpoint::Parts::model_and_adapters})
    EXPECT_ERROR((void)checkpoint::load_checkpoint(path_, parts), ExitCode::checkpoint,
                 "which has changed since the run began");
  fs::remove(base_);
  EXPECT_ERROR((void)checkpoint::load_checkpoint(path_), ExitCode::checkpoint, "which is not there any more");
}

// As long as the size and the time of its file are the same, it is not read for its hash.
TEST_F(BaseModelTest, AHashIsComputedOnlyWhereSizeOrTimeAreOthers) {
  const checkpoint::BaseModel base = checkpoint::describe_base(base_), other{base_, "no hash at all", base.stamp};
  EXPECT_EQ(checkpoint::find_base(other, path_).path, base_);
  const checkpoint::BaseModel untimed{base_, "no hash at all", base.stamp + "0"};
  EXPECT_THROW((void)checkpoint::find_base(untimed, path_), Error);
  const checkpoint::BaseModel unknown{root_ / "gone.pt", base.hash, base.stamp};
  EXPECT_THROW((void)checkpoint::find_base(unknown, path_), Error);
}

TEST_F(BaseModelTest, AdaptersOfAdaptersAreReadThroughBoth) {
  Adapted first = begun();
  first.train_to(kStop);
  checkpoint::save_checkpoint(path_, first.state.capture());
  const parameters::NamedTensors merged = checkpoint::load_checkpoint(path_, checkpoint::Parts::model).model;
  for (const BaseType type : {BaseType::automatic, BaseType::int8}) {
    Config config = config_;
    config.training.init_from = path_, config.training.tuning.lora.base = type;
    const Adapted second(config, corpus_, {.start = {}, .initial = read_initial_weights(config, {})});
    const std::string path = root_ / "second.pt";
    checkpoint::save_checkpoint(path, second.state.capture());
    expect_equal(checkpoint::load_checkpoint(path, checkpoint::Parts::model).model, merged);
    const checkpoint::Checkpoint whole = checkpoint::load_checkpoint(path);
    EXPECT_EQ(whole.frozen.contains("transformer.h.0.mlp.w2.weight"), type == BaseType::int8);
  }
}

// As where a run adds tokens. Only codes of it are in the model, and the checkpoint has what they were made of.
TEST_F(BaseModelTest, WeightsThatAreNotTheBasesAreInTheFile) {
  config_.training.tuning.lora.base = BaseType::int4;
  InitialWeights initial = read_initial_weights(config_, {});
  const std::string table = "transformer.wte.weight";
  at::Tensor changed;
  for (auto& [name, tensor] : initial.model)
    if (name == table) changed = tensor = tensor.clone().mul_(1.01);
  initial.changed = {table};
  const Adapted adapted(config_, corpus_, {.start = {}, .initial = initial});
  checkpoint::save_checkpoint(path_, adapted.state.capture());
  const checkpoint::Checkpoint read = checkpoint::load_checkpoint(path_);
  EXPECT_FALSE(read.from_base.contains(table) || read.frozen.contains(table));
  const parameters::NamedTensors model = checkpoint::load_checkpoint(path_, checkpoint::Parts::model).model;
  EXPECT_TRUE((std::map<std::string, at::Tensor>(model.begin(), model.end()).at(table).equal(changed)));
  const Adapted again = resumed();
  EXPECT_TRUE(
      again.state.model.parameters()[0].product_value().equal(adapted.state.model.parameters()[0].product_value()));
  checkpoint::save_checkpoint(path_ + "2", again.state.capture());
  const parameters::NamedTensors second = checkpoint::load_checkpoint(path_ + "2", checkpoint::Parts::model).model;
  EXPECT_TRUE((std::map<std::string, at::Tensor>(second.begin(), second.end()).at(table).equal(changed)));
}

TEST_F(BaseModelTest, AveragesOfAdaptersGoWithTheBaseInFull) {
  config_.training.tuning.lora.base = BaseType::int4;
  config_.training.optimizer.ema_decay = 0.5;
  Adapted adapted = begun();
  adapted.train_to(kStop);
  checkpoint::save_checkpoint(path_, adapted.state.capture());
  checkpoint::Checkpoint expected = checkpoint::load_checkpoint(path_, checkpoint::Parts::model_and_adapters);
  expected.optimizer = adapted.state.capture().optimizer;
  checkpoint::take_averages(expected, path_);
  checkpoint::merge_adapters(expected);
  expect_equal(checkpoint::load_averages(path_).model, expected.model);
}

// A file may name itself, with the right size and time, but not so that anything runs out.
TEST_F(BaseModelTest, AForgedCircleIsRefused) {
  checkpoint::Checkpoint forged = begun().state.capture();
  const std::string a = root_ / "a.pt", b = root_ / "b.pt";
  forged.base = checkpoint::BaseModel{b, "x", "1234567 1234567890123456789"};
  checkpoint::save_checkpoint(a, forged);
  const std::string stamp = checkpoint::describe_base(a).stamp;
  forged.base = checkpoint::BaseModel{a, "x", stamp};
  checkpoint::save_checkpoint(b, forged);
  forged.base = checkpoint::BaseModel{b, "x", checkpoint::describe_base(b).stamp};
  const auto time = fs::last_write_time(a);
  checkpoint::save_checkpoint(a, forged);
  fs::last_write_time(a, time);
  ASSERT_EQ(checkpoint::describe_base(a).stamp, stamp) << "their sizes are equal";
  EXPECT_ERROR((void)checkpoint::load_checkpoint(a), ExitCode::checkpoint,
               "more than 8 models name each other as their base");
}

}  // namespace
}  // namespace gpt::run
