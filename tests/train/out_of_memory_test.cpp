// A run that cannot get memory: what is saved, and what is said.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/process_memory.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/train/trainer.h"
#include "support/cpu_memory.h"

namespace gpt {
namespace {

// From the given step on, no more memory is to be had.
class ExhaustMemory : public Listener {
 public:
  explicit ExhaustMemory(int64_t step) : step_(step) {}
  void step(const StepRecord& record) override {
    if (record.step != step_) return;
    release_cpu_memory();
    limit_cpu_memory([] { return 0; });
  }

 private:
  int64_t step_;
};

// Bytes that the process holds after a step and after the validation that follows it.
struct Held {
  int64_t after_step = 0, after_validation = 0;
  int64_t freed_by_step = 0;  // what tensors have freed from their peak on
};

class WatchMemory : public Listener {
 public:
  explicit WatchMemory(Held& held) : held_(held) {}
  void step(const StepRecord&) override {
    held_.after_step = process_memory::bytes();
    held_.freed_by_step = cpu_memory().peak - cpu_memory().in_use;
  }
  void evaluation(const EvaluationRecord&) override { held_.after_validation = process_memory::bytes(); }

 private:
  Held& held_;
};

class OutOfMemoryRun : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::cpu_memory_is_counted()) GTEST_SKIP() << "no address range";
    std::vector<int32_t> ids(20'000);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % 61);
    corpus_.train = Tokens::from_ids(ids, 64);
    corpus_.sources = {corpus_.train};
    corpus_.validation = Tokens::from_ids({ids.begin(), ids.begin() + 3000}, 64);
    corpus_.vocab_size = 64;
    config_.data.bin = "ids.bin";  // without a tokenizer
    config_.model.n_layer = 2, config_.model.n_head = 2, config_.model.n_embd = 64, config_.model.block_size = 64;
    config_.model.vocab_size = 64, config_.model.dropout = 0.1;  // random numbers are drawn before memory runs out
    config_.training.batch_size = 16;
    config_.training.schedule.max_steps = 6;
    config_.training.cadence.log_interval = 1;
    config_.training.cadence.eval_interval = {3, Interval::Unit::steps};
    config_.training.cadence.checkpoint_interval = {0, Interval::Unit::steps};
    config_.training.precision.use_amp = false;
  }
  void TearDown() override { limit_cpu_memory(growable_by_tensors); }

  // The parameters at the end of the run.
  at::Tensor run(const std::string& folder_path, std::unique_ptr<Listener> listener = nullptr) {
    const run::Folder folder(folder_path);
    const run::Beginning begins{folder.find_start("auto", /*restart=*/false).start, {}};
    const run::Setup setup{config_, corpus_, describe_device(at::kCPU), Precision{}};
    run::Run run(setup, begins);
    Listeners listeners;
    if (listener) listeners.add(std::move(listener), "memory");
    Trainer(run, folder, listeners, /*is_saved=*/begins.start.has_value()).run();
    return run.model().parameters().flat_values().clone();
  }

  ScratchFolder root_;
  Corpus corpus_;
  Config config_;
};

TEST_F(OutOfMemoryRun, SavesTheLastUpdateAndResumesFromItBitForBit) {
  std::optional<run::Shortage> shortage;
  try {
    (void)run(root_ / "short", std::make_unique<ExhaustMemory>(3));
    ADD_FAILURE() << "the run had enough memory";
  } catch (const run::OutOfMemory& error) {
    shortage = error.shortage();
    EXPECT_EQ(error.code(), ExitCode::memory);
    EXPECT_NE(std::string(error.what()).find("out of memory in step 4: "), std::string::npos) << error.what();
  }
  ASSERT_TRUE(shortage);
  EXPECT_TRUE(shortage->is_saved);
  EXPECT_EQ(shortage->what_is_left, "Step 3 is saved in " + root_ / "short" +
                                        "/ckpt.pt: the same command with such a setting resumes from there");
  EXPECT_GT(shortage->requested, 0);
  ASSERT_TRUE(shortage->held);
  EXPECT_GT(shortage->held->activations, 0);
  limit_cpu_memory(growable_by_tensors);
  EXPECT_TRUE(run(root_ / "short").equal(run(root_ / "whole")));
}

TEST_F(OutOfMemoryRun, ReleaseMemoryGivesBackWhatAStepHeldAndChangesNothing) {
  config_.training.batch_size = 128;
  Held kept, released;
  const at::Tensor usual = run(root_ / "usual", std::make_unique<WatchMemory>(kept));
  config_.training.allocator.release_memory = true;
  EXPECT_TRUE(run(root_ / "released", std::make_unique<WatchMemory>(released)).equal(usual));
  EXPECT_GT(kept.after_validation, kept.after_step - kept.freed_by_step / 4);
  EXPECT_LT(released.after_validation, released.after_step - released.freed_by_step / 2);
}

}  // namespace
}  // namespace gpt
