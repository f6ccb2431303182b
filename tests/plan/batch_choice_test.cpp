#include "gpt/plan/batch_choice.h"

#include <gtest/gtest.h>

#include <vector>

#include "gpt/plan/estimates.h"
#include "gpt/run/state.h"
#include "plan/text_run.h"
#include "support/device_cases.h"

namespace gpt::plan {
namespace {

ModelConfig some_model() {
  ModelConfig model;
  model.n_layer = 4, model.n_head = 4, model.n_embd = 128, model.block_size = 128, model.vocab_size = 1000;
  return model;
}

TrainingConfig automatic(int64_t total_batch_size) {
  TrainingConfig training;
  training.batch_size = 0, training.total_batch_size = total_batch_size;
  return training;
}

// Against every divisor, one by one.
TEST(PlannedBatchSize, IsTheLargestDivisorThatLeavesATenthFree) {
  const ModelConfig model = some_model();
  const ActivationForm form{.cuda = true};
  for (const double available : {60e6, 100e6, 200e6, 400e6, 1000e6, 100e9}) {
    const MemoryBudget memory{.available = available, .program = 10e6, .data = 5e6};
    for (const int64_t total : {1, 7, 48, 60}) {
      const BatchChoice choice = plan_batch_size(model, automatic(total), form, memory);
      TrainingConfig training;
      double needed = 0;
      for (int64_t n = 1; n <= total; ++n) {
        training.batch_size = n;
        const double bytes = 15e6 + estimate_memory(model, training, form).total();
        if (total % n != 0 || (n > 1 && bytes > 0.9 * available)) continue;
        needed = bytes;
        if (choice.batch_size < n) FAIL() << n << " of " << total << " fit into " << available;
      }
      EXPECT_EQ(choice.needed, needed) << "more than fits, of " << total << " in " << available;
      EXPECT_EQ(choice.batch_size * choice.micro_steps, total);
    }
  }
  EXPECT_EQ(plan_batch_size(model, automatic(48), form, {.available = 100e9}).batch_size, 48)
      << "never more than the total";
  EXPECT_EQ(plan_batch_size(model, automatic(48), form, {.available = 1e6}).batch_size, 1) << "where nothing fits";
}

TEST(PlannedBatchSize, IsToldWithItsPlan) {
  EXPECT_EQ(describe({.batch_size = 32, .micro_steps = 4, .needed = 5.1e9, .available = 22e9}),
            "training.batch_size: auto chose 32 sequences, 4 micro-steps an update (the plan: 5.10 GB of 22.0 GB)");
}

TEST(TriedBatchSize, GoesDownTheDivisors) {
  const auto tried = [](int64_t total, int64_t from, int64_t most) {
    std::vector<int64_t> sizes;
    sizes.push_back(largest_that_fits(total, from, [&](int64_t size) {
      sizes.push_back(size);
      return size <= most;
    }));
    return sizes;
  };
  EXPECT_EQ(tried(12, 12, 100), (std::vector<int64_t>{12, 12}));
  EXPECT_EQ(tried(12, 12, 3), (std::vector<int64_t>{12, 6, 4, 3, 3}));
  EXPECT_EQ(tried(12, 4, 2), (std::vector<int64_t>{4, 3, 2, 2}));
  EXPECT_EQ(tried(7, 7, 0), (std::vector<int64_t>{7, 1})) << "there is nothing below one sequence to try";
}

class BatchChoiceOfARun : public DeviceTest, protected TextRun {
 protected:
  BatchChoiceOfARun() {
    config_.model.dropout = 0.1;
    config_.training = automatic(24);
  }
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    info_ = device::describe_device(device());
    precision_ = device::resolve_precision({.use_amp = false}, info_);
  }

  run::Setup setup() const { return {config_, corpus_, info_, precision_}; }

  device::DeviceInfo info_;
  device::Precision precision_;
};

TEST_P(BatchChoiceOfARun, IsSetWhereItIsAutoAlone) {
  run::Setup setup = this->setup();
  const auto choice = choose_batch_size(setup.config, means_of(setup), [&setup] { return fits_in_practice(setup); });
  EXPECT_EQ(setup.config.training.batch_size, 24) << "kilobytes fit everywhere";
  EXPECT_EQ(setup.config.training.gradient_accumulation_steps, 1);
  ASSERT_TRUE(choice);
  EXPECT_TRUE(describe(*choice).starts_with("training.batch_size: auto chose 24 sequences")) << describe(*choice);
  setup = this->setup();
  setup.config.training.batch_size = 5;
  EXPECT_FALSE(choose_batch_size(setup.config, means_of(setup)));
  EXPECT_EQ(setup.config.training.batch_size, 5);
}

TEST_P(BatchChoiceOfARun, AStepThatWasTriedChangesNothingInTheRun) {
  config_.training.batch_size = 12, config_.training.gradient_accumulation_steps = 2;
  const auto start = [&] { return run::State(config_, corpus_, device(), precision_).capture(); };
  const checkpoint::Checkpoint before = start();
  EXPECT_TRUE(fits_in_practice(setup()));
  const checkpoint::Checkpoint after = start();
  for (const auto& [name, state] : before.rng) EXPECT_TRUE(state.equal(after.rng.at(name))) << name;
  for (size_t i = 0; i < before.model.size(); ++i)
    EXPECT_TRUE(before.model[i].second.equal(after.model[i].second)) << before.model[i].first;
}

TEST_P(BatchChoiceOfARun, AStepWithoutMemoryDoesNotFit) {
  config_.training.batch_size = 12, config_.training.gradient_accumulation_steps = 2;
  config_.model.n_embd = 16384, config_.model.n_layer = 100'000;  // a petabyte, more than addresses have room for
  EXPECT_FALSE(fits_in_practice(setup()));
}

INSTANTIATE_ON_DEVICES(BatchChoiceOfARun);

}  // namespace
}  // namespace gpt::plan
