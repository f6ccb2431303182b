// Checkpoints with valid hashes whose parts do not fit together: no program may go on from one.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "container/records.h"
#include "core/scratch_folder.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"

namespace gpt::checkpoint {
namespace {

constexpr const char* kSlots[] = {"exp_avg", "exp_avg_sq"};

Checkpoint consistent_checkpoint() {
  Checkpoint checkpoint;
  ModelConfig& model = checkpoint.config.model;
  model.n_layer = 2, model.n_head = 2, model.n_embd = 16, model.block_size = 8, model.vocab_size = 12;
  for (const layout::ParameterRow& parameter : layout::parameter_table(model)) {
    checkpoint.model.emplace_back(parameter.name, at::ones(parameter.shape));
    for (const char* slot : kSlots)
      checkpoint.optimizer.slot(slot).emplace_back(parameter.name, at::zeros(parameter.shape));
  }
  checkpoint.step = 7, checkpoint.skipped_steps = 2, checkpoint.evaluated_step = 5;
  checkpoint.best_val_loss = 1.5;
  checkpoint.optimizer.step_count = at::scalar_tensor(5, at::kFloat);
  checkpoint.rng = {{"cpu", at::detail::createCPUGenerator(1).get_state()}};
  checkpoint.tokenizer = tokenizer::make_tokenizer("char", "abcdefghij")->to_json();
  checkpoint.data_fingerprint = "0123";
  return checkpoint;
}

void add(Checkpoint& checkpoint, const std::string& name) {
  checkpoint.model.emplace_back(name, at::ones({1}));
  for (const char* slot : kSlots) checkpoint.optimizer.slot(slot).emplace_back(name, at::ones({1}));
}

void with_window(Checkpoint& checkpoint) {
  checkpoint.spike_window = at::ones({2, 8});
  checkpoint.spike_accepted = at::scalar_tensor(5, at::kLong);
}

void with_plateau(Checkpoint& checkpoint) { checkpoint.config.training.schedule.lr_schedule = LrSchedule::plateau; }

// The moments as a run with 8-bit AdamW has them.
void in_codes(Checkpoint& checkpoint) {
  checkpoint.config.training.optimizer.state_dtype = StateDtype::int8;
  for (const char* slot : kSlots) {
    for (auto& [name, tensor] : checkpoint.optimizer.slot(slot)) {
      checkpoint.optimizer.slot(std::string(slot) + "_max")
          .emplace_back(name, at::ones({(tensor.numel() + 255) / 256}));
      tensor = tensor.to(at::kByte);
    }
  }
}

class Consistency : public testing::Test {
 protected:
  std::string refusal(const std::function<void(Checkpoint&)>& change) const {
    Checkpoint checkpoint = consistent_checkpoint();
    change(checkpoint);
    save_checkpoint(path_, checkpoint);
    return refusal();
  }
  std::string refusal() const {
    try {
      load_checkpoint(path_);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint) << error.what();
      const std::string what = error.what();
      EXPECT_TRUE(what.starts_with(path_ + " cannot be used: ")) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
      EXPECT_LT(what.size(), 700u) << what;
      return what;
    }
  }

  // A checkpoint that is right but for one record, and its hashes are right too.
  void change_record(const std::string& changed, const std::function<void(std::string&)>& change) const {
    const std::string original = folder_ / "original.pt";
    save_checkpoint(original, consistent_checkpoint());
    test::rewrite_record(original, path_, changed, [&](std::string& record) { return change(record), true; });
  }

  ScratchFolder folder_;
  std::string path_ = folder_ / "ckpt.pt";
};

TEST_F(Consistency, WhatATrainerWritesIsAccepted) {
  for (const auto& change : {std::function([](Checkpoint&) {}), std::function(in_codes)}) {
    EXPECT_EQ(refusal(change), "");
    EXPECT_EQ(python_view_of(path_, load_checkpoint(path_)), PythonView::ours);
  }
}

TEST_F(Consistency, EachPartHasToFitTheOthers) {
  struct Case {
    std::function<void(Checkpoint&)> change;
    std::string said;
  };
  const std::vector<Case> cases = {
      // A file of kilobytes that would ask for terabytes.
      {[](Checkpoint& c) { c.config.model.n_layer = 1024, c.config.model.n_embd = 8192; },
       "model/transformer.wte.weight has the shape [64, 16], and "},
      {[](Checkpoint& c) { c.config.model.n_embd = 15; }, "n_embd 15 is not divisible by n_head 2"},
      {[](Checkpoint& c) { c.config.model.n_embd = 6; }, "even head size"},
      {[](Checkpoint& c) { c.config.model.vocab_size.reset(); }, "model.vocab_size is not set"},
      {[](Checkpoint& c) { c.config.training.batch_size = 0, c.config.training.total_batch_size = 8; },
       "training.batch_size is not set"},
      {[](Checkpoint& c) {
         c.model.pop_back(), c.optimizer.slot(kSlots[0]).pop_back(), c.optimizer.slot(kSlots[1]).pop_back();
       },
       "model/transformer.ln_f.weight is missing"},
      {[](Checkpoint& c) { c.optimizer.slot(kSlots[0])[0].second = at::ones({2}); },
       "exp_avg/transformer.wte.weight has the shape [2], and [64, 16] in the model"},
      {[](Checkpoint& c) { c.optimizer.slot(kSlots[1])[0].second = at::ones({2}); },
       "exp_avg_sq/transformer.wte.weight has the shape [2], and [64, 16] in the model"},
      {[](Checkpoint& c) { c.config.training.optimizer.state_dtype = StateDtype::bfloat16; },
       "exp_avg/transformer.wte.weight is Float instead of BFloat16"},
      {[](Checkpoint& c) { in_codes(c), c.config.training.optimizer.state_dtype = StateDtype::float32; },
       "exp_avg/transformer.wte.weight is Byte instead of Float"},
      {[](Checkpoint& c) { in_codes(c), c.optimizer.slot("exp_avg_max").pop_back(); },
       "exp_avg_max/transformer.ln_f.weight is missing"},
      {[](Checkpoint& c) { in_codes(c), c.optimizer.slot("exp_avg_sq_max")[0].second = at::ones({3}); },
       "exp_avg_sq_max/transformer.wte.weight has the shape [3], and [4] in the model"},
      {[](Checkpoint& c) { c.optimizer.slot("exp_avg_max").emplace_back("transformer.wte.weight", at::ones({4})); },
       "exp_avg_max/transformer.wte.weight is not part of the model"},
      {[](Checkpoint& c) { add(c, "extra"); }, "model/extra is not part of the model"},
      {[](Checkpoint& c) { c.model[0].second = c.model[0].second.to(at::kDouble); }, "is Double"},
      {[](Checkpoint& c) { c.optimizer.step_count = at::Tensor(); }, "optimizer/step is not one value of type Float"},
      {[](Checkpoint& c) { c.optimizer.step_count = at::scalar_tensor(-1, at::kFloat); }, "optimizer/step is -1"},
      {[](Checkpoint& c) { c.scaler_scale = c.scaler_growth_tracker = at::scalar_tensor(2, at::kFloat); },
       "scaler/growth_tracker is not one value of type Int"},
      {[](Checkpoint& c) { c.rng.clear(); }, "rng/cpu is missing"},
      {[](Checkpoint& c) { c.rng["cpu"] = at::ones({100}, at::kByte); }, "rng/cpu is not the state of a generator"},
      {[](Checkpoint& c) { c.rng["cpu"] = at::ones({100}); }, "rng/cpu is not a row of bytes"},
      {[](Checkpoint& c) { c.rng["cuda"] = at::ones({3}, at::kByte); }, "rng/cuda has 3 bytes"},
      {[](Checkpoint& c) { c.rng["tpu"] = at::ones({3}, at::kByte); }, "rng/tpu is not known"},
      {[](Checkpoint& c) { c.skipped_steps = 8; }, "checkpoint.json: skipped_steps is 8, and at step 7 it can be "},
      {[](Checkpoint& c) { c.consecutive_skipped_steps = 3; }, "consecutive_skipped_steps is 3, and "},
      {[](Checkpoint& c) { c.evaluated_step = 9; }, "evaluated_step is 9, and "},
      {[](Checkpoint& c) { with_window(c), c.spike_accepted = at::scalar_tensor(-1, at::kLong); },
       "spikes/accepted is -1"},
      {[](Checkpoint& c) { with_window(c), c.spike_accepted = at::scalar_tensor(16, at::kLong); },
       "spikes/accepted is 16 for a window of 8"},
      {[](Checkpoint& c) { with_window(c), c.spike_accepted = at::scalar_tensor(1, at::kInt); },
       "spikes/accepted is not one value of type Long"},
      {[](Checkpoint& c) { c.spike_accepted = at::scalar_tensor(5, at::kLong); },
       "spikes/window is not two rows of float32"},
      {[](Checkpoint& c) { with_window(c), c.spike_window = c.spike_window.to(at::kDouble); },
       "spikes/window is not two rows of float32"},
      {[](Checkpoint& c) { with_window(c), c.spike_window = at::ones({8}); },
       "spikes/window is not two rows of float32"},
      {[](Checkpoint& c) { with_window(c), c.spike_window.fill_(-1); }, "spikes/window holds values below zero"},
      {[](Checkpoint& c) { c.rollbacks = 1, c.learning_rate_factor = 0; },
       "rollback/learning_rate_factor is 0, and at step 7 it can be above 0, up to 100"},
      {[](Checkpoint& c) { c.rollbacks = 8; }, "rollback/count is 8, and at step 7 it can be 0 or more, up to 7"},
      {[](Checkpoint& c) { c.decisions = {{5, "a", 1}, {3, "a", 1}}; },
       "at step 7 there is a decision of step 3 after one of step 5"},
      {[](Checkpoint& c) { c.decisions = {{8, "a", 1}}; }, "at step 7 there is a decision of step 8"},
      {[](Checkpoint& c) { c.waiting_step = 9; }, "rollback/waiting_step is 9"},
      {[](Checkpoint& c) { with_plateau(c), c.plateau.factor = 1.5; }, "plateau/factor is 1.5"},
      {[](Checkpoint& c) { with_plateau(c), c.plateau.without_improvement = 8; }, "plateau/without_improvement is 8"},
      {[](Checkpoint& c) { c.warmup_steps = int64_t{1} << 62; }, "schedule/warmup_steps is 4611686018427387904, and "},
      {[](Checkpoint& c) { c.optimizer.slot("exp_avg_sq")[1].second.fill_(-1e-30); },
       "exp_avg_sq/transformer.h.0.ln_1.weight holds values below zero"},
      {[](Checkpoint& c) { in_codes(c), c.optimizer.slot("exp_avg_max")[0].second[3] = -1; },
       "exp_avg_max/transformer.wte.weight holds values below zero"},
      {[](Checkpoint& c) { in_codes(c), c.optimizer.slot("exp_avg_sq_max")[0].second[3] = -1; },
       "exp_avg_sq_max/transformer.wte.weight holds values below zero"},
      {[](Checkpoint& c) { c.tokenizer.clear(); }, "tokenizer.json is empty, though the run read a text"},
      {[](Checkpoint& c) { c.tokenizer = "{\"type\": \"char\"}"; }, "tokenizer.json"},
      {[](Checkpoint& c) { c.tokenizer = tokenizer::make_tokenizer("byte", "")->to_json(); }, "tokenizer.json has 25"},
      {[](Checkpoint& c) { c.tokenizer = "{\"type\": \"" + std::string(1 << 20, 'x') + "\"}"; }, "tokenizer.json"},
  };
  for (const Case& test : cases) {
    const std::string what = refusal(test.change);
    EXPECT_NE(what.find(test.said), std::string::npos) << test.said << " | " << what;
  }
}

TEST_F(Consistency, ValuesThatAreNotFiniteAreRefused) {
  for (const char* changed : {"data/model/transformer.ln_f.weight", "data/exp_avg/transformer.ln_f.weight"}) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    change_record(changed, [&](std::string& bytes) {
      bytes.replace(4, sizeof nan, reinterpret_cast<const char*>(&nan), sizeof nan);
    });
    EXPECT_NE(refusal().find("holds values that are not finite"), std::string::npos) << refusal();
  }
}

TEST_F(Consistency, ARunOnTokenIdsHasNoTokenizer) {
  EXPECT_EQ(refusal([](Checkpoint& c) { c.tokenizer.clear(), c.config.data.bin = "ids.bin"; }), "");
}

TEST_F(Consistency, AnotherTokenizerIsRefused) {
  for (const std::string& other : {std::string(), tokenizer::make_tokenizer("char", "abc")->to_json()}) {
    change_record("tokenizer.json", [&](std::string& json) { json = other; });
    EXPECT_NE(refusal().find("tokenizer.json is not the tokenizer of this run"), std::string::npos) << refusal();
  }
}

// What computes with a model alone reads a third of the file, and what is wrong in the rest is none of its business.
TEST_F(Consistency, TheModelIsReadAndVerifiedAlone) {
  save_checkpoint(path_, consistent_checkpoint());
  const Checkpoint model = load_checkpoint(path_, Parts::model), whole = load_checkpoint(path_);
  ASSERT_EQ(model.model.size(), whole.model.size());
  for (size_t i = 0; i < model.model.size(); ++i) EXPECT_TRUE(at::equal(model.model[i].second, whole.model[i].second));
  EXPECT_TRUE(model.optimizer.slots.empty());
  EXPECT_EQ(model.step, whole.step);
  EXPECT_EQ(model.tokenizer, whole.tokenizer);

  const auto flip_a_bit_of = [&](const std::string& name) {
    std::string file = read_file(path_, ExitCode::checkpoint);
    file[file.find("archive/data/" + name) + 200] ^= 1;  // its data begin at most 128 bytes behind its name
    std::ofstream(path_, std::ios::binary) << file;
  };
  flip_a_bit_of("exp_avg/transformer.wte.weight");
  EXPECT_EQ(load_checkpoint(path_, Parts::model).step, whole.step);
  EXPECT_ERROR(load_checkpoint(path_), ExitCode::checkpoint,
               "record 'data/exp_avg/transformer.wte.weight' differs from its hash");
  flip_a_bit_of("model/transformer.wte.weight");
  EXPECT_ERROR(load_checkpoint(path_, Parts::model), ExitCode::checkpoint,
               "record 'data/model/transformer.wte.weight' differs");
}

// All programs need what only Python reads: the same file is a checkpoint for each of them or for none.
TEST_F(Consistency, WithoutPythonsRecordItIsRefused) {
  save_checkpoint(path_, consistent_checkpoint());
  test::rewrite_record(path_, path_ + "2", "data.pkl", [](std::string&) { return false; });
  EXPECT_ERROR(load_checkpoint(path_ + "2"), ExitCode::checkpoint, "incomplete: it has no record 'data.pkl'");
}

TEST_F(Consistency, ATensorWithLineEndsInItsNameIsRefusedInOneLine) {
  const std::string name = "model/transformer.ln_f.weight";
  change_record("checkpoint.json",
                [&](std::string& json) { json.replace(json.find(name), name.size(), "model/two\\nlines"); });
  EXPECT_NE(refusal().find("it has no record 'data/model/two\\x0alines'"), std::string::npos) << refusal();
}

TEST_F(Consistency, AnotherDictForPythonIsSeen) {
  change_record("data.pkl", [](std::string& pickle) { pickle = "cos\nsystem\n(S'true'\ntR."; });
  EXPECT_EQ(python_view_of(path_, load_checkpoint(path_)), PythonView::foreign);
}

TEST_F(Consistency, WhatAnOlderVersionWroteForPythonIsPlain) {
  change_record("data.pkl", [](std::string& pickle) { pickle.replace(pickle.find("tokenizer"), 9, "Tokenizer"); });
  EXPECT_EQ(python_view_of(path_, load_checkpoint(path_)), PythonView::plain);
}

}  // namespace
}  // namespace gpt::checkpoint
