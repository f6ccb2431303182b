// What users of other programs write: each name is one of our keys or gets an answer, in a file and as a flag.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/faults.h"
#include "gpt/config/option.h"

namespace gpt::config {
namespace {

std::string flag_fault(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gpt-train");
  return fault_of([&] { parse_command_line(static_cast<int>(arguments.size()), arguments.data(), "gpt-train", ""); });
}

bool is_key(const std::string& name) {
  Config defaults;
  const std::vector<Option> rows = options(defaults);
  return std::any_of(rows.begin(), rows.end(), [&](const Option& row) {
    return row.name == name ||
           std::any_of(row.aliases.begin(), row.aliases.end(), [&](const Alias& alias) { return alias.name == name; });
  });
}

constexpr const char* kNanoGpt[] = {
    "out_dir",    "eval_interval", "log_interval",  "eval_iters",     "eval_only", "always_save_checkpoint",
    "init_from",  "wandb_log",     "wandb_project", "wandb_run_name", "dataset",   "gradient_accumulation_steps",
    "batch_size", "block_size",    "n_layer",       "n_head",         "n_embd",    "dropout",
    "bias",       "learning_rate", "max_iters",     "weight_decay",   "beta1",     "beta2",
    "grad_clip",  "decay_lr",      "warmup_iters",  "lr_decay_iters", "min_lr",    "backend",
    "device",     "dtype",         "compile"};
constexpr const char* kTrainer[] = {"output_dir",
                                    "overwrite_output_dir",
                                    "do_train",
                                    "do_eval",
                                    "eval_strategy",
                                    "evaluation_strategy",
                                    "per_device_train_batch_size",
                                    "per_device_eval_batch_size",
                                    "gradient_accumulation_steps",
                                    "learning_rate",
                                    "weight_decay",
                                    "adam_beta1",
                                    "adam_beta2",
                                    "adam_epsilon",
                                    "max_grad_norm",
                                    "num_train_epochs",
                                    "max_steps",
                                    "max_train_steps",
                                    "lr_scheduler_type",
                                    "warmup_ratio",
                                    "warmup_steps",
                                    "logging_dir",
                                    "logging_steps",
                                    "save_strategy",
                                    "save_steps",
                                    "save_total_limit",
                                    "seed",
                                    "bf16",
                                    "fp16",
                                    "tf32",
                                    "local_rank",
                                    "eval_steps",
                                    "dataloader_num_workers",
                                    "dataloader_pin_memory",
                                    "load_best_model_at_end",
                                    "label_smoothing_factor",
                                    "optim",
                                    "report_to",
                                    "resume_from_checkpoint",
                                    "gradient_checkpointing",
                                    "torch_compile",
                                    "model_name_or_path",
                                    "train_file",
                                    "validation_file",
                                    "hidden_size",
                                    "num_hidden_layers",
                                    "num_attention_heads",
                                    "num_key_value_heads",
                                    "intermediate_size",
                                    "max_position_embeddings",
                                    "n_positions",
                                    "rope_theta",
                                    "tie_word_embeddings",
                                    "attn_pdrop"};
constexpr const char* kOthers[] = {"tensorboard",
                                   "resume",
                                   "precision",
                                   "devices",
                                   "num_nodes",
                                   "global_batch_size",
                                   "micro_batch_size",
                                   "max_seq_length",
                                   "max_tokens",
                                   "lr_warmup_steps",
                                   "save_interval",
                                   "input_bin",
                                   "input_val_bin",
                                   "sequence_length",
                                   "total_batch_size",
                                   "steps",
                                   "log_every",
                                   "eval_every",
                                   "save_every",
                                   "dropout_rate",
                                   "muon_lr",
                                   "output",
                                   "data_dir",
                                   "model_type",
                                   "train_batch_size",
                                   "auto_find_batch_size",
                                   "cpu_offload_pin",
                                   "offload_param",
                                   "buffer_swapping",
                                   "activation_offloading",
                                   "layers",
                                   "smoothing",
                                   "workers",
                                   "find_lr",
                                   "stage",
                                   "processed_data_path",
                                   "benchmark_epochs",
                                   "skip_unit_tests",
                                   "skip_integration_tests",
                                   "skip_benchmarks",
                                   "lora_r",
                                   "moe_experts",
                                   "num_experts",
                                   "use_ema",
                                   "ema_update_every",
                                   "swa",
                                   "llrd",
                                   "layer_lr_decay",
                                   "logit_softcap",
                                   "z_loss",
                                   "yarn_factor",
                                   "rope_type",
                                   "time_limit",
                                   "max_train_time",
                                   "dpo",
                                   "sft",
                                   "lion",
                                   "adafactor",
                                   "packing",
                                   "quantize",
                                   "push_to_hub",
                                   "early_stop",
                                   "sliding_window",
                                   "fp8",
                                   "flash_attn",
                                   "mlflow",
                                   "sweep",
                                   "watch",
                                   "finetune_from",
                                   "zero_stage",
                                   "check_for_spiky_loss",
                                   "loss_spike_threshold",
                                   "skip_loss_spikes"};

TEST(Foreign, EveryNameHasAnAnswer) {
  std::vector<std::string> names(std::begin(kNanoGpt), std::end(kNanoGpt));
  names.insert(names.end(), std::begin(kTrainer), std::end(kTrainer));
  names.insert(names.end(), std::begin(kOthers), std::end(kOthers));
  for (const std::string& name : names) {
    if (is_key(name)) continue;
    const std::string in_file = yaml_fault(fmt::format("training:\n  {}: x\n", name));
    EXPECT_TRUE(in_file.starts_with(fmt::format("c.yaml:2:3: unknown key '{}' in 'training': ", name))) << in_file;
    if (name == "eval_only") continue;  // a flag of gpt-train
    const std::string as_flag = flag_fault({fmt::format("--{}=x", name).c_str()});
    EXPECT_TRUE(as_flag.starts_with(fmt::format("unknown flag '--{}': ", name))) << as_flag;
  }
}

TEST(Foreign, AnswersSayWhatToUse) {
  const std::string metrics =
      "report.html and metrics.jsonl in output_dir have every logged step and evaluation; set report.tensorboard: true for "
      "event files that TensorBoard reads; there is no Weights & Biases and nothing like it";
  EXPECT_EQ(yaml_fault("wandb_log: true\n"), "c.yaml:1:1: unknown key 'wandb_log': " + metrics);
  EXPECT_EQ(flag_fault({"--wandb-project", "x"}), "unknown flag '--wandb-project': " + metrics);
  EXPECT_EQ(flag_fault({"--training.fp16"}),
            "unknown flag '--training.fp16': set training.dtype to bfloat16, float16, tf32 or float32");
  EXPECT_EQ(
      flag_fault({"--activation_offloading=true"}),
      "unknown flag '--activation_offloading': set training.swap_activations to the number of blocks whose activations the memory of "
      "the host is to have, or auto");
  EXPECT_EQ(yaml_fault("eval_only: true\n"), "c.yaml:1:1: unknown key 'eval_only': start gpt-train with --eval-only");
  EXPECT_EQ(yaml_fault("train:\n  batch_size: 3\n"),
            "c.yaml:1:1: unknown key 'train': the section is called 'training'");
  EXPECT_EQ(
      flag_fault({"--benchmark_epochs", "3"}),
      "unknown flag '--benchmark_epochs': measuring has a program of its own: gpt-bench modes --epochs 3, and gpt-bench "
      "--help lists what else it measures");
  EXPECT_NE(
      flag_fault({"--model_name", "gpt2"}).find("training.init_from begins a run with the weights of a checkpoint"),
      std::string::npos);
  EXPECT_EQ(flag_fault({"-o", "x"}), "unknown flag '-o': flags are whole words; did you mean '--output_dir'?");
}

TEST(Foreign, EightBitsHaveAnEverydaySpelling) {
  using enum StateDtype;
  const auto state_of = [](const std::string& training) {
    return from_yaml("training: {" + training + "}\n").training.optimizer.state_dtype;
  };
  EXPECT_EQ(state_of("fused_adamw: true"), float32);
  EXPECT_EQ(state_of("use_8bit: true"), int8);
  EXPECT_EQ(state_of("use_8bit_adam: true"), int8);
  EXPECT_EQ(state_of("use_8bit: false"), float32);
  EXPECT_EQ(state_of("optimizer_state_dtype: bfloat16"), bfloat16);
  EXPECT_EQ(yaml_fault("training:\n  optimizer_state_dtype: float32\n  use_8bit: true\n"),
            "c.yaml:3:3: 'training.optimizer_state_dtype' is already set at c.yaml:2:3; keep one");
  EXPECT_EQ(
      yaml_fault("training:\n  optimizer_state_dtype: 8bit\n"),
      "c.yaml:2:26: 'training.optimizer_state_dtype' must be one of float32, bfloat16, int8, got '8bit'; did you mean 'int8'?");
}

TEST(Foreign, OptimizersHaveOtherSpellings) {
  const auto kind_of = [](const std::string& training) {
    return from_yaml("training: {" + training + "}\n").training.optimizer.kind;
  };
  EXPECT_EQ(kind_of("use_muon: true"), OptimizerKind::muon);
  EXPECT_EQ(kind_of("use_muon: false"), OptimizerKind::adamw);
  EXPECT_EQ(kind_of("optim: normuon"), OptimizerKind::normuon);
  EXPECT_EQ(
      yaml_fault("training:\n  muon_lr: 0.02\n"),
      "c.yaml:2:3: unknown key 'muon_lr' in 'training': training.learning_rate is that of Muon and of AdamW: Muon's updates "
      "are scaled to the size of AdamW's");
}

TEST(Foreign, NamesThatMeanOneKeyAreThatKey) {
  const Config c = from_yaml(
      "output: o\n"
      "model: {hidden_size: 48, num_hidden_layers: 2, num_attention_heads: 3, intermediate_size: 99, dropout_rate: 0.5}\n"
      "training: {per_device_train_batch_size: 5, steps: 7, logging_steps: 2, eval_steps: 3, save_steps: 4, adam_beta2: 0.9}\n");
  EXPECT_EQ(c.output_dir, "o");
  EXPECT_EQ(c.model.n_embd, 48);
  EXPECT_EQ(c.model.n_layer, 2);
  EXPECT_EQ(c.model.n_head, 3);
  EXPECT_EQ(c.model.n_hidden, 99);
  EXPECT_EQ(c.model.dropout, 0.5);
  EXPECT_EQ(c.training.batch_size, 5);
  EXPECT_EQ(c.training.schedule.max_steps, 7);
  EXPECT_EQ(c.training.cadence.log_interval, 2);
  EXPECT_EQ(c.training.cadence.eval_interval, (Interval{3, Interval::Unit::run}));
  EXPECT_EQ(c.training.cadence.checkpoint_interval, (Interval{4, Interval::Unit::run}));
  EXPECT_EQ(c.training.optimizer.beta2, 0.9);
  EXPECT_EQ(from_yaml("training: {log_every: 2, eval_every: 3, save_every: 4, num_train_epochs: 2}\n")
                .training.schedule.epochs,
            2);
}

TEST(Foreign, ValuesAreTranslated) {
  for (const char* preset : {"gpt2", "gpt2-small", "GPT2_small", "124M", "d12"}) {
    const std::string fault = flag_fault({"--preset", preset});
    EXPECT_TRUE(fault.ends_with("; did you mean 'gpt2_small'?")) << fault;
  }
  EXPECT_TRUE(flag_fault({"--preset", "gpt2-medium"}).ends_with("; did you mean 'gpt2_medium'?"));
  EXPECT_TRUE(flag_fault({"--dtype", "bf16"}).ends_with("; did you mean 'bfloat16'?"));
  EXPECT_EQ(
      yaml_fault("data:\n  dataset: shakespeare_char\n"),
      "c.yaml:2:12: 'data.dataset' must be one of none, shakespeare, got 'shakespeare_char'; did you mean 'shakespeare'?");
  for (const char* dataset : {"openwebtext", "my.txt"}) {
    EXPECT_EQ(flag_fault({"--dataset", dataset}),
              fmt::format("--data.dataset must be one of none, shakespeare, got '{}'; for any other text, "
                          "set data.text to its file or folder",
                          dataset));
  }
}

}  // namespace
}  // namespace gpt::config
