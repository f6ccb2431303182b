// A run that cannot get memory: what is saved, and what is said.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/process_memory.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/train/trainer.h"
#include "support/cpu_memory.h"

namespace gpt::train {
namespace {

// From the given step on, no more memory is to be had.
class ExhaustMemory : public report::Listener {
 public:
  explicit ExhaustMemory(int64_t step) : step_(step) {}
  void step(const report::StepRecord& record) override {
    if (record.step != step_) return;
    device::release_cpu_memory();
    device::limit_cpu_memory([] { return 0; });
  }

 private:
  int64_t step_;
};

// Bytes that the process holds after a step and after the validation that follows it.
struct Held {
  int64_t after_step = 0, after_validation = 0;
  int64_t freed_by_step = 0;  // what tensors have freed from their peak on
};

class WatchMemory : public report::Listener {
 public:
  explicit WatchMemory(Held& held) : held_(held) {}
  void step(const report::StepRecord&) override {
    held_.after_step = process_memory::bytes();
    held_.freed_by_step = device::cpu_memory().peak - device::cpu_memory().in_use;
  }
  void evaluation(const report::EvaluationRecord&) override { held_.after_validation = process_memory::bytes(); }

 private:
  Held& held_;
};

// What other programs take of the memory: from some moment on all but 1 MB, for so many seconds, which pass while somebody waits.
struct Others {
  std::atomic<bool> take{false};
  std::atomic<int> looks{0}, waited{0};

  MemoryWatch::Senses senses(int seconds) {
    take = false, waited = 0;
    return {.look =
                [this, seconds] {
                  ++looks;
                  return MemoryWatch::Look{take && waited < seconds ? 1'000'000 : 1'000'000'000, 0};
                },
            .wait = [this](std::chrono::milliseconds) { ++waited; },
            .between_looks = std::chrono::milliseconds(1)};
  }
};

// Others take the memory after the given step, and the run has seen that before the next one.
class FillMemory : public report::Listener {
 public:
  FillMemory(Others& others, int64_t step) : others_(others), step_(step) {}
  void step(const report::StepRecord& record) override {
    if (record.step != step_ || others_.waited > 0) return;
    others_.take = true;
    for (const int before = others_.looks; others_.looks < before + 3;) std::this_thread::yield();
  }

 private:
  Others& others_;
  int64_t step_;
};

class OutOfMemoryRun : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::cpu_memory_is_counted()) GTEST_SKIP() << "no address range";
    std::vector<int32_t> ids(20'000);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % 61);
    corpus_.train = data::Tokens::from_ids(ids, 64);
    corpus_.sources = {corpus_.train};
    corpus_.validation = data::Tokens::from_ids({ids.begin(), ids.begin() + 3000}, 64);
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
  void TearDown() override { device::limit_cpu_memory(device::growable_by_tensors); }

  // The parameters at the end of the run.
  at::Tensor run(const std::string& folder_path, std::unique_ptr<report::Listener> listener = nullptr,
                 MemoryWatch::Senses senses = MemoryWatch::of_this_machine()) {
    const run::Folder folder(folder_path);
    const run::Beginning begins{folder.find_start("auto", /*restart=*/false).start, {}};
    const run::Setup setup{config_, corpus_, device::describe_device(at::kCPU), device::Precision{}};
    run::Run run(setup, begins);
    report::Listeners listeners;
    if (listener) listeners.add(std::move(listener), "memory");
    Trainer(run, folder, listeners, /*is_saved=*/begins.start.has_value(), /*decisions=*/{}, std::move(senses)).run();
    return run.model().parameters().flat_values().clone();
  }

  ScratchFolder root_;
  data::Corpus corpus_;
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
  device::limit_cpu_memory(device::growable_by_tensors);
  EXPECT_TRUE(run(root_ / "short").equal(run(root_ / "whole")));
}

TEST_F(OutOfMemoryRun, WaitsForMemoryThatOthersTakeAndGoesOnBitForBit) {
  Others others;
  const at::Tensor usual = run(root_ / "usual");
  EXPECT_TRUE(
      run(root_ / "passed", std::make_unique<FillMemory>(others, 3), others.senses(/*seconds=*/2)).equal(usual));
  EXPECT_EQ(others.waited, 2);
  EXPECT_TRUE(std::filesystem::exists(root_ / "passed/ckpt.pt"));

  try {
    (void)run(root_ / "stayed", std::make_unique<FillMemory>(others, 3), others.senses(/*seconds=*/100));
    ADD_FAILURE() << "the run had enough memory";
  } catch (const run::OutOfMemory& error) {
    EXPECT_EQ(error.what(),
              std::string("out of memory after step 3: other programs take it; 1.00 MB was free when the run saw that, "
                          "and it waited in vain"));
    EXPECT_TRUE(error.shortage().is_saved);
  }
  EXPECT_EQ(others.waited, MemoryWatch::kMostSeconds);
  EXPECT_TRUE(run(root_ / "stayed").equal(usual));
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
}  // namespace gpt::train
