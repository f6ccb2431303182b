// The table of rules: every two techniques together are allowed or refused, and what is refused can be cured.
#include "gpt/config/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "config/faults.h"
#include "gpt/config/option.h"
#include "gpt/config/value.h"

namespace gpt::config {
namespace {

// Rows that switch nothing on: quantities, names and paths. A new key is a technique with values to try (Option::tried), or stands here.
const std::set<std::string> kQuantities = {"seed",
                                           "threads",
                                           "output_dir",
                                           "data.text_field",
                                           "data.document_separator",
                                           "data.chat_template",
                                           "data.tokenizer",
                                           "data.cache_dir",
                                           "data.cache_limit",
                                           "model.n_layer",
                                           "model.n_head",
                                           "model.n_embd",
                                           "model.n_hidden",
                                           "model.block_size",
                                           "model.vocab_size",
                                           "model.rope_theta",
                                           "model.rope_window_theta",
                                           "model.rope_scaling_factor",
                                           "model.rope_low_freq_factor",
                                           "model.rope_high_freq_factor",
                                           "model.rope_original_length",
                                           "model.rope_beta_slow",
                                           "model.rope_beta_fast",
                                           "model.rope_attention_factor",
                                           "model.attention_block",
                                           "model.attention_top_blocks",
                                           "model.window_pattern",
                                           "model.rope_pattern",
                                           "model.norm_eps",
                                           "training.lora_alpha",
                                           "training.lora_targets",
                                           "training.max_time",
                                           "training.min_lr",
                                           "training.beta1",
                                           "training.beta2",
                                           "training.eps",
                                           "training.muon_momentum",
                                           "training.average_after",
                                           "training.decay_fraction",
                                           "training.plateau_factor",
                                           "training.plateau_patience",
                                           "training.plateau_threshold",
                                           "training.plateau_cooldown",
                                           "training.log_interval",
                                           "training.eval_tasks",
                                           "training.eval_task_limit",
                                           "training.sample_tokens",
                                           "training.sample_prompt",
                                           "training.on_event",
                                           "training.distill_temperature",
                                           "training.max_skipped_steps",
                                           "training.spike_window",
                                           "training.spike_threshold",
                                           "training.rollback_lr_factor",
                                           "training.max_rollbacks",
                                           "distributed.timeout"};

TEST(Techniques, AreAllKeysButQuantities) {
  Config defaults;
  std::set<std::string> known = kQuantities;
  for (const Technique& technique : techniques()) {
    EXPECT_GE(technique.values.size(), 2u) << technique.key;
    EXPECT_TRUE(known.insert(technique.key).second) << technique.key << " is a quantity and a technique";
  }
  for (const Option& row : options(defaults))
    EXPECT_TRUE(known.contains(row.key()))
        << row.key() << " is new: give its row the values to try (Option::tried), or list it among the quantities";
  EXPECT_EQ(known.size(), options(defaults).size());
}

IsKept only(const std::vector<std::string>& keys) {
  return [keys](const std::string& key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); };
}

// A value, and the facts that come with a device.
struct Setting {
  std::string key, value;
  std::string text() const { return key + ": " + value; }
};

Facts facts_with(const Config& config) {
  Facts facts;
  if (config.device != "auto") facts.is_cpu = config.device == "cpu";
  return facts;
}

// A setting with what it needs to be allowed at all.
Config base_with(const Setting& setting) {
  Config config;
  if (setting.key == "data.metadata" || setting.key == "data.validation_bin") config.data.bin = "a.bin";
  Keys(config).set(setting.key, setting.value);
  EXPECT_TRUE(cure(config, only({setting.key}), facts_with(config)))
      << setting.text() << " cannot be had at all: " << find_refusal(config)->text();
  return config;
}

TEST(Rules, EveryPairOfTechniquesIsAllowedOrCured) {
  std::vector<std::vector<Setting>> all;
  for (const Technique& technique : techniques()) {
    all.emplace_back();
    for (const std::string& value : technique.values) all.back().push_back({technique.key, value});
  }
  int refused = 0;
  Config pair;
  Keys keys(pair);
  for (const auto& of_one : all) {
    for (const Setting& one : of_one) {
      const Config base = base_with(one);
      for (const auto& of_other : all) {
        if (&of_other == &of_one) continue;
        for (const Setting& other : of_other) {
          pair = base;
          keys.set(other.key, other.value);
          const auto refusal = find_refusal(pair, facts_with(pair));
          if (!refusal) continue;
          ++refused;
          EXPECT_FALSE(refusal->advice.empty()) << refusal->why;
          // What describes a bin cannot be kept without one.
          const bool is_of_bin = other.key == "data.metadata" || other.key == "data.validation_bin";
          Config cured = pair;
          if (!cure(cured, only({is_of_bin ? one.key : other.key}), facts_with(pair)))
            ADD_FAILURE() << one.text() << " with " << other.text() << ": " << refusal->text();
          else if (const auto left = find_refusal(cured, facts_with(cured)))
            ADD_FAILURE() << one.text() << " with " << other.text() << ", cured: " << left->text();
        }
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Rules, CuresFollowOneAnother) {
  Config config;
  config.training.quantized.type = QuantizedForward::int8;
  config.training.execution.swap_activations.reset();
  config.training.execution.gradient_checkpointing = GradientCheckpointing::norm;
  config.training.execution.use_compile = false;
  const auto changes = cure(config, only({"training.use_compile"}));
  ASSERT_TRUE(changes);
  EXPECT_EQ(*changes, (std::vector<std::string>{"training.gradient_checkpointing: none", "training.swap_activations: 0",
                                                "training.quantized_forward: none"}));
}

TEST(Rules, CuresLeaveAloneWhatWasWritten) {
  Config config;
  config.distributed.zero = 3, config.training.optimizer.kind = OptimizerKind::muon;
  Config other = config, both = config;
  EXPECT_EQ(cure_unwritten(config, {{"distributed.zero", "--zero"}}, {}),
            std::vector<std::string>{"training.optimizer: adamw"});
  EXPECT_EQ(cure_unwritten(other, {{"training.optimizer", "--optimizer"}}, {}),
            std::vector<std::string>{"distributed.zero: 2"});
  const Origins written{{"training.optimizer", "--optimizer"}, {"distributed.zero", "--zero"}};
  EXPECT_EQ(cure_unwritten(both, written, {"distributed.zero"}), std::vector<std::string>{"training.optimizer: adamw"})
      << "both were written, and one of them is what was asked for now";
}

TEST(Rules, ACureThatIsForbiddenChangesNothing) {
  Config config;
  config.distributed.zero = 3, config.training.optimizer.kind = OptimizerKind::muon;
  EXPECT_EQ(cure(config, only({"distributed.zero", "training.optimizer"})), std::nullopt);
  EXPECT_EQ(config.distributed.zero, 3);
}

TEST(Rules, FactsThatAreUnknownContradictNothing) {
  Config config;
  config.training.optimizer.offload = 1, config.data.document_mask = true;
  EXPECT_EQ(find_refusal(config), std::nullopt);
  EXPECT_EQ(find_refusal(config, {.is_cpu = true})->why,
            "offload_optimizer is 1, but on a CPU the optimizer's state is in the memory of the host anyway");
  EXPECT_EQ(find_refusal(config, {.is_cpu = false})->text(),
            "document_mask is computed on a CPU alone so far; set document_mask to false, or device to cpu");
}

TEST(Rules, ConversationsAreKeptApartWherePositionsCanBe) {
  Config config;
  const Facts on_cpu{.is_cpu = true, .has_conversations = true}, on_gpu{.is_cpu = false, .has_conversations = true};
  EXPECT_EQ(find_refusal(config, on_cpu), std::nullopt);
  EXPECT_EQ(find_refusal(config, {.is_cpu = false, .has_conversations = false}), std::nullopt);
  EXPECT_EQ(
      find_refusal(config, on_gpu)->text(),
      "packing keeps conversations apart by document masks, which are computed on a CPU alone so far; set packing to "
      "false, or device to cpu");
  config.model.attention = AttentionForm::blocks;
  EXPECT_EQ(
      find_refusal(config, on_cpu)->text(),
      "model.attention blocks chooses by means over whole blocks, in which conversations end and begin, and packing "
      "keeps them apart; set packing to false, or model.attention to full");
  config.data.packing = false;
  EXPECT_EQ(find_refusal(config, on_cpu), std::nullopt);
  config.model.attention = AttentionForm::full;
  EXPECT_EQ(find_refusal(config, on_gpu), std::nullopt);
  config.data.document_mask = true;
  EXPECT_EQ(find_refusal(config, {.is_cpu = true, .has_conversations = false}), std::nullopt);
  EXPECT_EQ(
      find_refusal(config, on_cpu)->text(),
      "document_mask would cut a conversation where the end-of-text token ends a message, and without packing there "
      "is none beside it; set document_mask to false, or packing to true");
}

TEST(Rules, FlashAttentionOfLibTorchHasNoDropoutOnACpu) {
  Config config;
  config.training.execution.attention = AttentionKernel::flash, config.training.execution.use_compile = false;
  config.model.dropout = 0.1;
  EXPECT_EQ(find_refusal(config), std::nullopt);
  EXPECT_EQ(
      find_refusal(config, {.is_cpu = true})->text(),
      "attention flash without use_compile is LibTorch's, which has no dropout on a CPU; set attention to auto, or "
      "use_compile to true, or dropout to 0");
  config.model.dropout = 0;
  EXPECT_EQ(find_refusal(config, {.is_cpu = true}), std::nullopt);
}

// Whose equal bits need a lane for each micro-batch.
TEST(Rules, ZeroTwoWithLanesNeedsALaneForEachMicroBatch) {
  Config config;
  config.distributed.processes = 2, config.distributed.zero = 2, config.distributed.lanes = 2;
  config.training.gradient_accumulation_steps = 4;
  EXPECT_EQ(find_refusal(config), std::nullopt) << "until it is known how the update was divided";
  EXPECT_EQ(
      find_refusal(config, {.data_processes = 2})->text(),
      "zero 2 gives equal bits only where each of an update's 4 micro-batches has a lane of its own, and lanes is "
      "2; raise lanes, set zero to 1, or leave lanes out");
}

TEST(Rules, AutocastIsRefusedWhereTheRunHasIt) {
  Config config;
  config.training.precision.amp_mode = AmpMode::autocast;
  config.training.quantized.type = QuantizedForward::int8;
  EXPECT_NE(find_refusal(config), std::nullopt);
  config.training.precision.dtype = Dtype::float32;
  EXPECT_EQ(find_refusal(config), std::nullopt);
  config.training.precision.dtype = Dtype::automatic, config.training.precision.amp_mode = AmpMode::automatic;
  EXPECT_EQ(find_refusal(config), std::nullopt);
  EXPECT_NE(find_refusal(config, {.computes_in_16_bits = true, .is_end_to_end = false}), std::nullopt);
}

TEST(Rules, MuonWithoutZeroNeedsMachinesThatAreAlike) {
  Config config;
  config.training.optimizer.kind = OptimizerKind::muon;
  EXPECT_EQ(find_refusal(config, {.are_alike = true}), std::nullopt);
  EXPECT_EQ(
      find_refusal(config, {.are_alike = false})->advice,
      "set zero to 1, with which each matrix is updated by one of them, or optimizer to adamw, or take machines that "
      "are alike");
  config.distributed.zero = 1;
  EXPECT_EQ(find_refusal(config, {.are_alike = false}), std::nullopt);
}

Config divided(int64_t processes, int64_t tensor_parallel) {
  Config config;
  config.model.n_head = 8, config.model.n_kv_head = 4, config.model.n_embd = 64, config.model.n_hidden = 96;
  config.distributed.processes = processes, config.distributed.tensor_parallel = tensor_parallel;
  return config;
}

TEST(RulesOfTensorParallel, AreKeptWhereEverySizeCanBeDivided) {
  EXPECT_EQ(find_refusal(divided(4, 2)), std::nullopt);
  EXPECT_EQ(find_refusal(divided(4, 4)), std::nullopt);
  EXPECT_EQ(find_refusal(divided(1, 4)), std::nullopt) << "a launcher may start more";
  EXPECT_EQ(find_refusal(divided(1, 4), {.all_are_started = true})->text(),
            "tensor_parallel 4 does not divide 1 process; set processes to 4");
}

TEST(RulesOfTensorParallel, NameTheNearestSizesThatFit) {
  const auto text = [](const Config& config) { return find_refusal(config)->text(); };
  EXPECT_EQ(text(divided(6, 4)), "tensor_parallel 4 does not divide 6 processes; set processes to 4 or 8");
  EXPECT_EQ(text(divided(3, 4)), "tensor_parallel 4 does not divide 3 processes; set processes to 4");
  EXPECT_EQ(text(divided(3, 3)),
            "model.n_head is 8, which tensor_parallel 3 cannot divide evenly; set n_head to 6 or 9, or tensor_parallel "
            "to 1");
  Config config = divided(4, 4);
  config.model.n_hidden = 98;
  EXPECT_EQ(text(config),
            "model.n_hidden is 98, which tensor_parallel 4 cannot divide evenly; set n_hidden to 96 or 100, or "
            "tensor_parallel to 1");
  config.model.n_hidden = 96, config.model.vocab_size = 3, config.model.vocab_multiple = 1;
  EXPECT_EQ(text(config), "tensor_parallel 4 is more than the 3 rows of the vocabulary; set it to 3 or less");
}

// Whose kernels draw dropout for groups of columns.
TEST(RulesOfTensorParallel, LeaveTheGroupsWholeForWhichAGpuDrawsDropout) {
  Config config = divided(2, 2);
  config.model.n_hidden = 344;
  const Facts on_gpu{.is_cpu = false};
  EXPECT_EQ(find_refusal(config), std::nullopt) << "until the device is known";
  EXPECT_EQ(find_refusal(config, {.is_cpu = true}), std::nullopt);
  EXPECT_EQ(
      find_refusal(config, on_gpu)->text(),
      "a GPU draws the dropout of a gated MLP for groups of 8 of its hidden values, and tensor_parallel 2 does not "
      "divide n_hidden 344 into whole ones; set n_hidden to 336 or 352, or dropout to 0, or tensor_parallel to 1");
  config.model.n_hidden = 352;
  EXPECT_EQ(find_refusal(config, on_gpu), std::nullopt);
  config.model.n_hidden = 344, config.model.dropout = 0;
  EXPECT_EQ(find_refusal(config, on_gpu), std::nullopt);
  config.model.dropout = 0.1, config.model.mlp = Mlp::gelu;
  EXPECT_EQ(find_refusal(config, on_gpu), std::nullopt) << "which drops out what all processes have whole";
}

TEST(IdleKeys, AreNamedForOneReasonEach) {
  Config config;
  config.training.cadence.eval_interval.count = 0;
  std::set<std::string> named;
  for (const IdleKeys& idle : find_idle(config, {.has_validation = false}))
    for (const std::string& key : idle.keys) EXPECT_TRUE(named.insert(key).second) << key;
  EXPECT_TRUE(named.contains("training.patience"));
  EXPECT_TRUE(named.contains("training.eval_batches"));
}

TEST(RulesMarkdown, NamesBothSidesOfEachContradiction) {
  const std::string text = rules_markdown();
  for (const char* row : {"| `training.quantized_forward`: int8, fp8 | `training.use_compile`: false |",
                          "| `distributed.zero`: 3 | `training.optimizer`: muon, normuon |",
                          "| `training.offload_optimizer`: 0.5 | `device`: cpu |"})
    EXPECT_NE(text.find(row), std::string::npos) << row;
}

}  // namespace
}  // namespace gpt::config
