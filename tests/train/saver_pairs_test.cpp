// What saves memory, each setting alone and every two of them together: a run trains, is resumed to the bit, and reaches the loss of
// the run without them.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "support/device_cases.h"
#include "support/restore_context.h"
#include "train/tiny_run.h"

namespace gpt::train {
namespace {

// How far the loss may be from that of the run without a saver. On a CPU recomputing changes no bit; where sums are taken in
// another order, float32 is rounded otherwise; 8 bits of the moments and 16 of the rest move updates by a hundredth.
constexpr double kExact = 0, kRounding = 1e-5, kFewerBits = 1e-2;

struct Saver {
  std::string name;
  std::function<void(TrainingConfig&)> apply;
  double bound = kExact;
};

Saver recompute(std::string name, GradientCheckpointing level) {
  return {std::move(name), [level](TrainingConfig& t) { t.execution.gradient_checkpointing = level; }};
}

void end_to_end(TrainingConfig& t) {
  t.precision.use_amp = true, t.precision.dtype = Dtype::bfloat16, t.precision.amp_mode = AmpMode::end_to_end;
}

std::vector<Saver> savers() {
  using enum GradientCheckpointing;
  return {
      recompute("activation", activation),
      recompute("norm", norm),
      recompute("selective", selective),
      recompute("block", block),
      {"int8", [](TrainingConfig& t) { t.optimizer.state_dtype = StateDtype::int8; }, kFewerBits},
      {"bfloat16 moments", [](TrainingConfig& t) { t.optimizer.state_dtype = StateDtype::bfloat16; }, kFewerBits},
      {"autocast",
       [](TrainingConfig& t) {
         end_to_end(t);
         t.precision.amp_mode = AmpMode::autocast;
       },
       kFewerBits},
      {"end to end", end_to_end, kFewerBits},
      {"bfloat16 gradients",
       [](TrainingConfig& t) {
         end_to_end(t);
         t.precision.gradient_dtype = GradientDtype::bfloat16;
       },
       kFewerBits},
      {"no master",
       [](TrainingConfig& t) {
         end_to_end(t);
         t.precision.master_weights = false;
       },
       kFewerBits},
      {"accumulation",
       [](TrainingConfig& t) {
         t.batch_size /= 2;
         t.gradient_accumulation_steps *= 2;
       },
       kRounding},
      {"offload", [](TrainingConfig& t) { t.optimizer.offload = 0.5; }},
      {"small chunks", [](TrainingConfig& t) { t.execution.loss_chunk_rows = 8; }, kRounding},
  };
}

// Two settings of the same key, which exclude each other.
const std::set<std::string> kAlternatives = {
    "activation + norm",       "activation + selective", "activation + block",
    "norm + selective",        "norm + block",           "selective + block",
    "int8 + bfloat16 moments", "autocast + end to end",  "autocast + bfloat16 gradients",
    "autocast + no master"};

class SaverPairs : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    path_ = testing::TempDir() + "saver_pairs_" + std::to_string(getpid()) + ".pt";
    at::set_num_threads(1);  // on a busy machine threads meet more slowly than this model computes
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Config base() const {
    Config config = tiny_config(corpus_);
    config.model.dropout = 0;  // on a GPU attention's masks depend on the micro-batch
    config.training.precision = {.use_amp = false, .dtype = Dtype::float32};
    return config;
  }

  // The last loss of a run that is stopped, saved and resumed; the run that never stopped has the same bits.
  double train(const Config& config) const {
    config::validate(config, "savers", {});
    const device::Precision precision =
        device::resolve_precision(config.training.precision, device::describe_device(device()));
    device::apply_precision(precision, /*deterministic=*/true);
    TinyRun whole(config, corpus_, device(), precision);
    whole.train_to(kStop);
    checkpoint::save_checkpoint(path_, whole.state.capture());
    const std::vector<double> losses = whole.train_to(kUpdates);
    const run::StartingPoint start{.checkpoint = checkpoint::load_checkpoint(path_), .path = path_};
    TinyRun resumed(config, corpus_, device(), precision, &start);
    EXPECT_EQ(resumed.train_to(kUpdates), losses);
    expect_same_weights_and_moments(resumed.state.capture(), whole.state.capture());
    return losses.back();
  }

  const data::Corpus corpus_ = some_corpus();
  std::string path_;
  RestoreContext restore_;
};

TEST_P(SaverPairs, TrainResumeAndReachTheLossOfTheRunWithoutThem) {
  const std::vector<Saver> all = savers();
  const double expected = train(base());
  std::set<std::string> alternatives;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i; j < all.size(); ++j) {
      const Saver &a = all[i], &b = all[j];
      const std::string name = i == j ? a.name : a.name + " + " + b.name;
      SCOPED_TRACE(name);
      Config config = base(), other = base();
      a.apply(config.training);
      b.apply(other.training);
      if (i != j) {
        b.apply(config.training);
        a.apply(other.training);
        if (config::dump(config) != config::dump(other)) {
          alternatives.insert(name);
          continue;
        }
      }
      const double bound = std::max({a.bound, b.bound, device().is_cpu() ? kExact : kRounding});
      EXPECT_LE(std::abs(train(config) - expected), bound * expected);
    }
  }
  EXPECT_EQ(alternatives, kAlternatives);
}

INSTANTIATE_ON_DEVICES(SaverPairs);

}  // namespace
}  // namespace gpt::train
