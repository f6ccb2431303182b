#include "foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/config/suggest.h"

namespace gpt::config {
namespace {

struct Advice {
  std::vector<std::string_view> names;  // with a '*' at the end: whatever begins so
  std::string_view text;
  bool only_in_yaml = false;
};

const std::vector<Advice>& advices() {
  static const std::vector<Advice> kAdvices = {
      {{"wandb*", "mlflow*", "comet*", "neptune*", "clearml*", "tensorboard*", "report_to", "logging_dir",
        "logger_name"},
       "report.html and metrics.jsonl in output_dir have every logged step and evaluation; set report.tensorboard: true for "
       "event files that TensorBoard reads; there is no Weights & Biases and nothing like it"},
      {{"resume", "resume_from_checkpoint", "load_checkpoint", "resume_training"},
       "gpt-train continues the run in output_dir by itself; set training.resume_from to continue the run of another "
       "checkpoint, training.init_from to begin a new run with its weights, or start gpt-train with --restart to begin again"},
      {{"pretrained", "from_pretrained", "model_name", "model_name_or_path", "model_type", "finetune*", "fine_tune*",
        "init_checkpoint", "init_weights", "load_weights", "warm_start"},
       "training.init_from begins a run with the weights of a checkpoint, or of a folder that holds a GPT-2 or Llama of Hugging "
       "Face's, which is not downloaded; model.preset only sets the size of the model, such as gpt2_small"},
      {{"checkpoint", "ckpt", "load", "model_path"},
       "gpt-train continues the run in output_dir by itself; training.init_from begins a new run with the weights of a checkpoint"},
      {{"eval_only"}, "start gpt-train with --eval-only", /*only_in_yaml=*/true},
      {{"lr_decay_iters", "lr_decay_steps"}, "the learning rate decays until the end of the run, training.max_steps"},
      {{"fp16", "bf16", "fp32", "float16", "bfloat16", "mixed_precision", "precision"},
       "set training.dtype to bfloat16, float16, tf32 or float32"},
      {{"tf32"}, "set training.dtype to tf32"},
      {{"per_device_eval_batch_size", "eval_batch_size"}, "validation uses training.batch_size too"},
      {{"train_batch_size"},
       "set training.total_batch_size for the sequences of an update, training.batch_size for those of a micro-step"},
      {{"auto_find_batch_size", "auto_scale_batch_size", "auto_batch_size"},
       "set training.batch_size: auto, and training.total_batch_size to the sequences of an update"},
      {{"activation_offload*"},
       "set training.swap_activations to the number of blocks whose activations the memory of the host is to have, or auto"},
      {{"cpu_offload_*", "offload_*", "optimizer_offload_*", "use_offload*"},
       "set training.offload_optimizer to the share of the optimizer's state that the memory of the host is to have, from 0 to 1, and "
       "training.swap_activations to the number of blocks whose activations it is to have"},
      {{"max_tokens", "num_tokens"}, "set the length of the run in updates, training.max_steps, or in training.epochs"},
      {{"warmup_ratio", "warmup_fraction"}, "set training.warmup_steps to a number of updates"},
      {{"attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout*", "attention_dropout",
        "attention_probs_dropout_prob"},
       "there is one dropout for the whole model, model.dropout"},
      {{"muon_lr", "muon_learning_rate", "matrix_lr", "embedding_lr", "adam_lr", "adamw_lr"},
       "training.learning_rate is that of Muon and of AdamW: Muon's updates are scaled to the size of AdamW's"},
      {{"muon_weight_decay", "muon_wd"}, "training.weight_decay is that of Muon and of AdamW"},
      {{"always_save_checkpoint", "save_strategy", "save_best_only", "load_best_model_at_end"},
       "ckpt.pt and ckpt_best.pt in output_dir are always kept; training.checkpoint_interval says how often they are written"},
      {{"save_total_limit"}, "set training.keep_last to the number of older checkpoints to keep"},
      {{"eval_strategy", "evaluation_strategy"}, "set training.eval_interval, such as '500 steps' or '1 epoch'"},
      {{"do_train", "do_eval"}, "gpt-train always trains, and evaluates at every training.eval_interval"},
      {{"overwrite_output_dir"}, "start gpt-train with --restart: it sets the old run in output_dir aside"},
      {{"check_for_spiky_loss", "loss_spike*", "skip_loss_spike*"},
       "set training.on_divergence to what is to happen after a loss spike: stop, skip or rollback"},
      {{"early_stop*"},
       "set training.patience to the number of validations without a new best that end a run; ckpt_best.pt has the best weights"},
      {{"backend", "ddp*", "devices", "n_gpu", "num_gpus", "num_nodes", "nnodes", "local_rank", "world_size"},
       "set distributed.processes to the number of processes on this machine, one for each GPU; for several machines start "
       "gpt-train with torchrun --no-python, mpirun or srun, which say who is who"},
      {{"dist_timeout", "ddp_timeout", "nccl_timeout"}, "set distributed.timeout, in seconds"},
      {{"gpu", "no_cuda", "use_cpu", "use_cuda", "cuda", "cpu"}, "set device to auto, cpu, cuda or cuda:N"},
      {{"flash_attention*", "use_flash_att*", "flash", "flash_attn*", "attn_implementation"},
       "flash attention is used wherever the device has it; training.attention chooses another kernel"},
      {{"data_dir", "train_data", "train_data_path", "input", "inputs", "input_file", "corpus"},
       "set data.text to a file or folder of text, or data.bin to a file of token ids"},
      {{"validation_file", "val_file", "val_data", "val_data_path"},
       "set data.validation_fraction to hold back a part of the text, or data.validation_bin beside data.bin"},
      {{"find_lr", "lr_find", "lr_finder", "auto_lr", "auto_lr_find"},
       "set training.learning_rate: auto, which finds one before the run; gpt-train --find-lr only shows what it finds"},
      {{"stage", "curriculum*", "phase"},
       "the parts of a run are a list in the configuration, data.stages: [{from: 0, block_size: 64}, {from: 500}]"},
      {{"fsdp*", "deepspeed*"},
       "set distributed.zero: 3 to divide the optimizer's state, the gradients and the weights of blocks among the processes; 2 divides "
       "the first two, 1 the state alone"},
      {{"processed_data_path", "processed_data", "tokenized_data*", "token_file"},
       "set data.bin to the file of token ids that gpt-prepare has written, such as data/texts/tokens_bpe.bin"},
      {{"benchmark", "benchmark_*", "run_benchmark*", "skip_benchmark*", "profile"},
       "measuring has a program of its own: gpt-bench modes --epochs 3, and gpt-bench --help lists what else it measures"},
      {{"skip_unit_tests", "skip_integration_tests", "skip_tests", "run_tests", "unit_tests", "integration_tests"},
       "gpt-train runs no tests; ./scripts/test.sh in the checkout does, and --skip-e2e leaves out the slow ones"},
      {{"sliding_window*", "local_attention*", "window_size"},
       "set model.attention_window to the tokens that a position sees"},
      {{"fp8*", "use_fp8", "float8*"},
       "set training.quantized_forward, which computes the products of blocks in 8 bits"},
      {{"lora*target*", "target_modules"},
       "name the products that have adapters in training.lora_targets, such as [q_proj, v_proj]"},
      {{"lora*", "peft*", "adapter*", "use_lora"},
       "set training.lora_rank, such as 16, to train adapters (LoRA) of the model that training.init_from names"},
      {{"qlora*", "load_in_4bit", "load_in_8bit"},
       "set training.lora_base to int4 or int8, beside training.lora_rank, for the weights that adapters go with"},
      {{"ema*", "swa*", "use_ema", "model_ema*", "weight_average*"},
       "set training.ema_decay, such as 0.999, for exponential averages of the weights beside them; there are no others"},
      {{"layer_lr_decay", "layerwise_lr*", "llrd"},
       "all layers have the same learning rate; training.freeze leaves some out"},
      {{"softcap*", "logit_softcap*", "attn_logit_softcap*", "final_logit_softcap*", "z_loss*"},
       "there is none; the keys of model: say what a model can have, and nothing else changes attention or the loss"},
      {{"moe*", "num_experts*", "n_experts", "num_local_experts", "expert*"},
       "there is no mixture of experts; every token goes through all of the model"},
      {{"time_limit*", "time_budget*", "train_time*", "max_train_time*", "max_wall_time", "max_walltime"},
       "set training.max_time, such as \"10 minutes\""},
      {{"yarn*", "rope_type"}, "set model.rope_scaling to yarn, llama3 or linear, with model.rope_scaling_factor"},
      {{"dpo*", "rlhf*", "ppo*", "grpo*", "orpo*", "reward_model*"},
       "there is no training on preferences; training.init_from tunes a model on texts or conversations"},
      {{"sft*", "assistant_only_loss", "completion_only_loss", "train_on_inputs", "train_on_responses_only"},
       "of conversations the answers alone are learned (data.learn); training.init_from begins with a trained model"},
      {{"lion", "adafactor", "sophia", "lamb", "shampoo", "sgd", "use_lion", "use_adafactor"},
       "training.optimizer is adamw, muon or normuon; training.optimizer_state_dtype: int8 saves memory"},
      {{"packing", "pack*", "group_by_length"},
       "conversations are packed unless data.packing is false; other sequences are cut out of all documents, one after the other, and "
       "data.document_mask keeps them apart"},
      {{"quantize", "load_in_8bit", "load_in_4bit", "quantization*", "bnb*"},
       "a trained model is quantized by gpt-export --format quantized, or where it is used, gpt-generate --dtype int8"},
      {{"push_to_hub", "hub_*"}, "nothing is uploaded; gpt-export writes the folder that 'hf upload' takes"},
      {{"sweep*", "hyperparameter_search", "optuna*"},
       "gpt-train --sweep KEY=VALUE,VALUE trains a run for each value and compares them"},
      {{"live", "open", "watch", "dashboard"}, "open report.html in output_dir, and load it again as the run goes on"},
      {{"train", "trainer", "training_args"}, "the section is called 'training'", /*only_in_yaml=*/true},
  };
  return kAdvices;
}

// What llm.c and others write with one letter.
constexpr std::pair<char, std::string_view> kLetters[] = {
    {'c', "config"},     {'o', "output_dir"}, {'i', "bin"},       {'j', "validation_bin"}, {'e', "preset"},
    {'b', "batch_size"}, {'t', "block_size"}, {'x', "max_steps"}, {'l', "learning_rate"},
};

// Another program's value and ours.
// clang-format off
constexpr std::pair<std::string_view, std::string_view> kValues[] = {
    {"gpt2", "gpt2_small"},      {"124m", "gpt2_small"},   {"117m", "gpt2_small"},       {"d12", "gpt2_small"},
    {"355m", "gpt2_medium"},     {"350m", "gpt2_medium"},  {"345m", "gpt2_medium"},      {"d24", "gpt2_medium"},
    {"774m", "gpt2_large"},      {"d36", "gpt2_large"},    {"1558m", "gpt2_xl"},         {"1.5b", "gpt2_xl"},
    {"d48", "gpt2_xl"},          {"bf16", "bfloat16"},     {"bf16_mixed", "bfloat16"},   {"bf16_true", "bfloat16"},
    {"fp16", "float16"},         {"half", "float16"},      {"16_mixed", "float16"},      {"fp32", "float32"},
    {"float", "float32"},        {"32_true", "float32"},   {"shakespeare_char", "shakespeare"},
    {"rotary", "rope"},          {"absolute", "learned"},  {"gelu_new", "gelu"},         {"silu", "swiglu"},
    {"relu_squared", "relu2"},   {"squared_relu", "relu2"},
    {"cosine_with_min_lr", "cosine"}, {"8bit", "int8"},    {"uint8", "int8"},
    {"warmup_stable_decay", "wsd"},   {"constant_with_warmup", "constant"},
    {"reduce_lr_on_plateau", "plateau"}, {"reducelronplateau", "plateau"}, {"sqrt", "1-sqrt"},
};
// clang-format on

bool matches(std::string_view name, std::string_view pattern) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

}  // namespace

std::optional<std::string> advice_for(std::string_view name, bool in_yaml) {
  const std::string typed = normalised(name);
  for (const auto& [letter, ours] : kLetters) {
    if (!in_yaml && typed == std::string(1, letter))
      return fmt::format("flags are whole words; did you mean '--{}'?", ours);
  }
  for (const Advice& advice : advices()) {
    if (advice.only_in_yaml && !in_yaml) continue;
    const auto is_meant = [&](std::string_view pattern) { return matches(typed, pattern); };
    if (std::any_of(advice.names.begin(), advice.names.end(), is_meant)) return std::string(advice.text);
  }
  return std::nullopt;
}

std::optional<std::string> nearest_value(std::string_view value, const std::vector<std::string>& choices) {
  const std::string typed = normalised(value);
  for (const auto& [theirs, ours] : kValues) {
    if (typed == theirs && std::find(choices.begin(), choices.end(), ours) != choices.end()) return std::string(ours);
  }
  return did_you_mean(value, choices);
}

}  // namespace gpt::config
