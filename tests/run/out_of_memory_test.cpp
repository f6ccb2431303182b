#include "gpt/run/out_of_memory.h"

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

namespace gpt::run {
namespace {

TEST(RequestedBytes, AreReadFromTheMessageOfEachAllocator) {
  EXPECT_EQ(requested_bytes("not enough memory for a tensor of 104857600 bytes\nException raised from ..."), 104857600);
  EXPECT_EQ(requested_bytes("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: "
                            "you tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)"),
            2147483648);
  EXPECT_EQ(requested_bytes("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB"),
            2.5 * 1024 * 1024 * 1024);
  EXPECT_EQ(requested_bytes("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has"), 20.0 * 1024 * 1024);
  EXPECT_EQ(requested_bytes("std::bad_alloc"), 0);
  EXPECT_EQ(requested_bytes("Tried to allocate more than 1EB memory."), 0);
  EXPECT_EQ(requested_bytes("a tensor of "), 0);
}

TEST(ShortageText, NamesThePlaceTheRequestAndWhatIsFree) {
  Shortage shortage{.where = "in step 3", .requested = 512e6, .free = 120e6};
  EXPECT_EQ(to_text(shortage), "out of memory in step 3: 512 MB was requested, and 120 MB is free");
  shortage.free = 3e9;  // the step has given back what it held
  EXPECT_EQ(to_text(shortage), "out of memory in step 3: 512 MB was requested");
  EXPECT_EQ(to_text(Shortage{}), "out of memory before the first step");
  EXPECT_EQ(to_text(Shortage{.where = "after step 8", .is_taken_by_others = true, .free = 12e6}),
            "out of memory after step 8: other programs take it, and 12.0 MB is free");
}

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
  int64_t freed_by_step = 0;  // of tensors, from their peak on
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
    const Folder folder(folder_path);
    auto start = folder.find_start("auto", /*restart=*/false);
    const Setup setup{config_, corpus_, describe_device(at::kCPU), Precision{}};
    State state(config_, corpus_, at::kCPU, {}, start ? &*start : nullptr);
    const Plan plan = plan_run(config_.training, state.loader.batches_per_epoch());
    Listeners listeners;
    if (listener) listeners.add(std::move(listener), "memory");
    Trainer(state, setup, plan, folder, listeners, /*is_saved=*/start.has_value(), Recorder()).run();
    return state.model.parameters().flat_values().clone();
  }

  ScratchFolder root_;
  Corpus corpus_;
  Config config_;
};

TEST_F(OutOfMemoryRun, SavesTheLastUpdateAndResumesFromItBitForBit) {
  std::optional<Shortage> shortage;
  try {
    (void)run(root_ / "short", std::make_unique<ExhaustMemory>(3));
    ADD_FAILURE() << "the run had enough memory";
  } catch (const OutOfMemory& error) {
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
}  // namespace gpt::run
