#include "gpt/config/training_config.h"

#include "gpt/config/model_config.h"
#include "gpt/config/option.h"
#include "gpt/config/word_list.h"

namespace gpt::config {
namespace {

// What decides which tokens an update sees and in which precision: fixed once a run has started.
std::vector<Option> batch_and_precision(TrainingConfig& c) {
  return {
      {.name = "batch_size",
       .target = NumberOrAuto{&c.batch_size},
       .help = "sequences in a micro-step; auto = as many as fit into memory, which needs total_batch_size",
       .min = 1,
       .max = 1e6,
       .aliases = {{"micro_batch_size"}, {"per_device_train_batch_size"}, {"bs"}},
       .tried = {"8", "auto"}},
      {.name = "gradient_accumulation_steps",
       .target = &c.gradient_accumulation_steps,
       .help = "micro-steps per update; follows from total_batch_size where that is set",
       .min = 1,
       .max = 1e6,
       .aliases = {{"accumulate_grad_batches"}, {"grad_accum"}, {"grad_accum_steps"}, {"accumulation_steps"}},
       .tried = {"1", "2"}},
      {.name = "sequence_length",
       .target = &c.sequence_length,
       .help =
           "tokens of a sequence to learn from; auto = model.block_size, at most 512 for conversations, and for a model of init_from "
           "what suits memory and text",
       .min = 1,
       .max = 1e6,
       .aliases = {{"max_length"}, {"sequence_len"}},
       .tried = {"auto", "8"}},
      {.name = "total_batch_size",
       .target = &c.total_batch_size,
       .help = "sequences per update; auto = batch_size times gradient_accumulation_steps",
       .min = 1,
       .max = 1e6,
       .aliases = {{"global_batch_size"}, {"effective_batch_size"}, {"total_train_batch_size"}},
       .tried = {"auto", "16"}},
      {.name = "use_amp",
       .target = &c.precision.use_amp,
       .help = "compute in 16 bits where the device gains from it; false = float32",
       .aliases = {{"amp"}}},
      {.name = "dtype",
       .target = choice(c.precision.dtype, {{"auto", Dtype::automatic},
                                            {"float32", Dtype::float32},
                                            {"tf32", Dtype::tf32},
                                            {"bfloat16", Dtype::bfloat16},
                                            {"float16", Dtype::float16}}),
       .help =
           "precision; auto = bfloat16 where that is faster than float32, otherwise float16 on a GPU and float32 on a CPU"},
      {.name = "amp_mode",
       .target =
           choice(c.precision.amp_mode,
                  {{"auto", AmpMode::automatic}, {"autocast", AmpMode::autocast}, {"end_to_end", AmpMode::end_to_end}}),
       .help =
           "how 16 bits are used: autocast = in products, attention and activations; end_to_end = from the embedding to "
           "the loss, bfloat16 only; auto = end_to_end for bfloat16 where the device has it, otherwise autocast"},
      {.name = "master_weights",
       .target = &c.precision.master_weights,
       .help =
           "keep float32 weights beside the 16-bit ones of amp_mode end_to_end; false = 4 bytes a parameter less, and "
           "updates are rounded at random"},
      {.name = "gradient_dtype",
       .target = choice(c.precision.gradient_dtype, {{"auto", GradientDtype::automatic},
                                                     {"float32", GradientDtype::float32},
                                                     {"bfloat16", GradientDtype::bfloat16}}),
       .help =
           "how gradients are kept, in 4 or 2 bytes a parameter; auto = bfloat16 if the run is bfloat16 end to end, "
           "accumulates no gradients and does not choose its batch size; otherwise float32"},
  };
}

std::vector<Option> schedule(TrainingConfig& c) { return options(c.schedule); }

std::vector<Option> optimizer(TrainingConfig& c) {
  return {
      {.name = "optimizer",
       .target = choice(c.optimizer.kind, {{"adamw", OptimizerKind::adamw},
                                           {"muon", OptimizerKind::muon},
                                           {"normuon", OptimizerKind::normuon}}),
       .help =
           "adamw; muon = the matrices of the blocks by Muon, whose updates are orthogonal and as large as AdamW's, all else by AdamW; "
           "normuon = the same, with the rows of each update scaled to one size",
       .aliases = {{"optim"}, {"optimizer_type"}, {"optimizer_name"}, {"use_muon", "muon", "adamw"}}},
      {.name = "muon_momentum",
       .target = &c.optimizer.muon_momentum,
       .help = "Muon's decay rate of the momentum, which is Nesterov's",
       .min = 0,
       .max = 0.999999},
      {.name = "weight_decay",
       .target = &c.optimizer.weight_decay,
       .help = "weight decay, applied to matrices only",
       .min = 0,
       .max = 10,
       .tried = {"0.1", "0"}},
      {.name = "weight_decay_schedule",
       .target = choice(c.optimizer.decay_schedule, {{"constant", DecaySchedule::constant},
                                                     {"linear", DecaySchedule::linear},
                                                     {"cosine", DecaySchedule::cosine}}),
       .help =
           "weight decay along the run: constant, or from weight_decay down to 0 at its end, in a line or along a cosine"},
      {.name = "cautious_weight_decay",
       .target = &c.optimizer.cautious_weight_decay,
       .help = "apply weight decay only to the values that the update moves towards zero, too"},
      {.name = "beta1",
       .target = &c.optimizer.beta1,
       .help = "AdamW's decay rate of the first moment",
       .min = 0,
       .max = 0.999999,
       .aliases = {{"adam_beta1"}}},
      {.name = "beta2",
       .target = &c.optimizer.beta2,
       .help = "AdamW's decay rate of the second moment",
       .min = 0,
       .max = 0.999999,
       .aliases = {{"adam_beta2"}}},
      {.name = "eps",
       .target = &c.optimizer.eps,
       .help = "AdamW's epsilon, for numerical stability",
       .min = 1e-16,
       .max = 0.1,
       .aliases = {{"adam_epsilon"}}},
      {.name = "gradient_clip",
       .target = &c.optimizer.gradient_clip,
       .help = "maximum norm of the gradient; 0 = no clipping",
       .min = 0,
       .max = 1e9,
       .aliases = {{"grad_clip"}, {"max_norm"}, {"max_grad_norm"}},
       .tried = {"1", "0"}},
      {.name = "fused_adamw",
       .target = &c.optimizer.fused_adamw,
       .help = "update with one kernel; false = one operator at a time, for comparison",
       .aliases = {{"use_fused_adamw"}}},
      {.name = "optimizer_state_dtype",
       .target =
           choice(c.optimizer.state_dtype,
                  {{"float32", StateDtype::float32}, {"bfloat16", StateDtype::bfloat16}, {"int8", StateDtype::int8}}),
       .help =
           "how AdamW's two moments are kept, in 8, 4 or 2 bytes a parameter, and Muon's momentum, in half of that; int8 = 8-bit codes "
           "with a scale per 256 values",
       .aliases = {{"use_8bit", "int8", "float32"},
                   {"use_8bit_adam", "int8", "float32"},
                   {"use_8bit_optimizer", "int8", "float32"}}},
      {.name = "float32_embedding_state",
       .target = &c.optimizer.float32_embedding_state,
       .help = "keep the moments of the embeddings in float32, whatever optimizer_state_dtype is"},
      {.name = "offload_optimizer",
       .target = &c.optimizer.offload,
       .help =
           "share of the optimizer's state, in whole tensors, that stays in the memory of the host, which a GPU's kernel reads "
           "and writes over the bus",
       .min = 0,
       .max = 1,
       .aliases = {{"cpu_offload", "1", "0"}, {"optimizer_offload"}, {"offload_optimizer_states", "1", "0"}},
       .tried = {"0", "0.5"}},
      {.name = "ema_decay",
       .target = &c.optimizer.ema_decay,
       .help =
           "what an exponential average of the weights, kept in float32 beside them, keeps of itself at each update, such as 0.999; "
           "gpt-generate and gpt-export take the averages with --averages; 0 = there are none",
       .min = 0,
       .max = 0.9999999,
       .aliases = {{"model_ema_decay"}, {"ema_rate"}},
       .tried = {"0", "0.9"}},
      {.name = "average_after",
       .target = &c.optimizer.average_after,
       .help = "the share of the run after which the averages of ema_decay begin; until then they are the weights",
       .min = 0,
       .max = 0.99},
      {.name = "label_smoothing",
       .target = &c.label_smoothing,
       .help = "share of the target probability spread over the vocabulary, in training only",
       .min = 0,
       .max = 0.9,
       .aliases = {{"label_smoothing_factor"}, {"smoothing"}},
       .tried = {"0", "0.1"}},
  };
}

std::vector<Option> execution(TrainingConfig& c) {
  return {
      {.name = "use_compile",
       .target = &c.execution.use_compile,
       .help = "compute with the program's own operators instead of LibTorch's",
       .aliases = {{"compile"}, {"use_torch_compile"}, {"torch_compile"}}},
      {.name = "compile_mode",
       .target = choice(c.execution.compile_mode, {{"auto", CompileMode::automatic},
                                                   {"default", CompileMode::standard},
                                                   {"reduce-overhead", CompileMode::reduce_overhead},
                                                   {"max-autotune", CompileMode::max_autotune}}),
       .help =
           "how much use_compile optimizes; reduce-overhead, on a GPU: also records the step as CUDA graphs; max-autotune: also "
           "measures how to compute each matrix product, which another run may choose otherwise; auto = max-autotune on a GPU, default "
           "where that cannot be or deterministic is set",
       .aliases = {{"torch_compile_mode"}}},
      {.name = "attention",
       .target = choice(c.execution.attention, {{"auto", AttentionKernel::automatic},
                                                {"cudnn", AttentionKernel::cudnn},
                                                {"flash", AttentionKernel::flash},
                                                {"efficient", AttentionKernel::efficient},
                                                {"math", AttentionKernel::math}}),
       .help =
           "kernel of the attention; auto = the fastest that works; cudnn and efficient need a GPU, and cudnn a dropout in sixteenths; math is unfused",
       .aliases = {{"attention_backend"}},
       .otherwise = "for what a token sees, set model.attention"},
      {.name = "loss_chunk_rows",
       .target = &c.execution.loss_chunk_rows,
       .help =
           "tokens whose logits exist at a time; 0 = as many as take 8 MB on a CPU, at least 256, or on a GPU up to 600 MB, as leaves it least idle",
       .min = 0,
       .max = 1e9,
       .tried = {"0", "8"}},
      {.name = "gradient_checkpointing",
       .target = choice(c.execution.gradient_checkpointing, {{"none", GradientCheckpointing::none},
                                                             {"activation", GradientCheckpointing::activation},
                                                             {"norm", GradientCheckpointing::norm},
                                                             {"selective", GradientCheckpointing::selective},
                                                             {"block", GradientCheckpointing::block}}),
       .help =
           "what the backward pass computes again to save memory: activation = the MLP's activation; norm = the norms too; "
           "selective = everything but attention and its input; block or true = whole blocks",
       .aliases = {{"use_activation_checkpointing", "block", "none"}},
       .if_true = "block",
       .if_false = "none"},
      {.name = "swap_activations",
       .target = &c.execution.swap_activations,
       .help =
           "number of blocks, from the first one on, whose activations wait for the backward pass in page-locked memory of the host; "
           "copies go both ways while other blocks compute; auto = the fewest with which the run fits into memory; needs a GPU",
       .min = 0,
       .max = 1e6,
       .aliases = {{"buffer_swapping", "auto", "0"},
                   {"use_buffer_swapping", "auto", "0"},
                   {"activation_offload"},
                   {"offload_activations"}},
       .safe_on_resume = true,
       .tried = {"0", "auto"}},
      {.name = "deterministic",
       .target = &c.execution.deterministic,
       .help = "make every run produce the same numbers, even where that costs speed"},
      {.name = "memory_fraction",
       .target = &c.allocator.memory_fraction,
       .help = "share of the device's memory that the run may take",
       .min = 0.01,
       .max = 1,
       .aliases = {{"per_process_memory_fraction"}, {"gpu_memory_fraction"}},
       .tried = {"1", "0.5"}},
      {.name = "expandable_segments",
       .target = &c.allocator.expandable_segments,
       .help = "take memory of a GPU in segments that grow, so that less is lost between tensors of different sizes; "
               "PYTORCH_ALLOC_CONF takes precedence"},
      {.name = "release_memory",
       .target = &c.allocator.release_memory,
       .help =
           "give back unused memory before and after validations and samples, for other programs; taking it again costs time"},
  };
}

std::vector<Option> cadence(TrainingConfig& c) {
  return {
      {.name = "log_interval",
       .target = &c.cadence.log_interval,
       .help = "updates between two log lines",
       .min = 1,
       .max = 1e12,
       .aliases = {{"log_every"}, {"logging_steps"}}},
      {.name = "log_norms",
       .target = &c.cadence.log_norms,
       .help =
           "measure the norms of gradients, weights and updates of each layer at every logged step, for metrics.jsonl, the report and "
           "TensorBoard"},
      {.name = "eval_interval",
       .target = &c.cadence.eval_interval,
       .help =
           "how often to validate, like '500 steps' or '2 epochs'; a bare number counts epochs if epochs is set, and steps "
           "otherwise; 0 = never, and no ckpt_best.pt",
       .min = 0,
       .max = 1e9,
       .aliases = {{"eval_every"}, {"eval_steps"}},
       .tried = {"500 steps", "1 epoch", "0"}},
      {.name = "eval_batches",
       .target = &c.cadence.eval_batches,
       .help =
           "batches of sequences per validation, drawn from all of the split; auto = as many sequences as the first validation needs for a standard error below 0.5 %, 0 = the whole split",
       .min = 0,
       .max = 1e12,
       .aliases = {{"eval_iters"}},
       .tried = {"auto", "0"}},
      {.name = "eval_tasks",
       .target = word_list(c.cadence.eval_tasks, /*may_have_spaces=*/true),
       .help =
           "tasks to evaluate on with each validation, written NAME:FILE as for gpt-eval, such as 'hellaswag:hellaswag_val.jsonl, lambada:lambada_test.jsonl'; [] = none"},
      {.name = "eval_task_limit",
       .target = &c.cadence.eval_task_limit,
       .help = "the first so many examples of each of eval_tasks; 0 = all",
       .min = 0,
       .max = 1e9},
      {.name = "evaluate",
       .target = choice(c.cadence.evaluates,
                        {{"weights", EvaluatedWeights::weights}, {"averages", EvaluatedWeights::averages}}),
       .help =
           "what validations, tasks and samples take, and so what the best checkpoint, patience and lr_schedule: plateau follow: the "
           "weights, or their averages (ema_decay)"},
      {.name = "patience",
       .target = &c.cadence.patience,
       .help =
           "end the run after so many validations without a new best; 0 = never; 5 where the program chose the sizes",
       .min = 0,
       .max = 1e9,
       .aliases = {{"early_stopping_patience"}},
       .tried = {"0", "5"}},
      {.name = "checkpoint_interval",
       .target = &c.cadence.checkpoint_interval,
       .help =
           "how often to save a checkpoint, written like eval_interval or as a time, '10 minutes'; 0 = only at the end",
       .min = 0,
       .max = 1e9,
       .aliases = {{"save_interval"}, {"save_every"}, {"save_steps"}},
       .may_be_time = true,
       .tried = {"10 minutes", "500 steps", "0"}},
      {.name = "async_checkpoint",
       .target = choice(c.cadence.async_checkpoint, {{"auto", AsyncCheckpoint::automatic},
                                                     {"true", AsyncCheckpoint::on},
                                                     {"false", AsyncCheckpoint::off}}),
       .help =
           "write checkpoints while training goes on, from a copy in the memory of the host; auto = where a checkpoint has "
           "at least 100 MB, the copy fits, and training would wait longer otherwise, as the first one tells",
       .if_true = "true",
       .if_false = "false"},
      {.name = "keep_last",
       .target = &c.cadence.keep_last,
       .help = "how many numbered checkpoints to keep besides ckpt.pt and ckpt_best.pt",
       .min = 0,
       .max = 1e9,
       .tried = {"0", "1"}},
      {.name = "sample_interval",
       .target = &c.cadence.sample_interval,
       .help = "how often to write a text sample, written like eval_interval; 0 = never",
       .min = 0,
       .max = 1e9,
       .tried = {"0", "100 steps"}},
      {.name = "sample_tokens", .target = &c.cadence.sample_tokens, .help = "tokens per sample", .min = 1, .max = 1e6},
      {.name = "sample_prompt",
       .target = &c.cadence.sample_prompt,
       .help =
           "text that a sample continues; empty = the tokenizer's start of a text, and of conversations the first question"},
      {.name = "resume_from",
       .target = &c.resume_from,
       .help =
           "auto = continue the run in output_dir, if there is one; none = start a new one in an empty output_dir; or a checkpoint "
           "whose run goes on, with its data, optimizer and step; init_from takes only weights",
       .is_path = true,
       .tried = {"auto", "a.pt"}},
      {.name = "init_from",
       .target = &c.init_from,
       .help =
           "a checkpoint of gpt-train, or a folder or FILE.safetensors of Hugging Face's with a GPT-2 or Llama, whose weights and "
           "tokenizer a new run begins with, for fine-tuning or other data; the sizes of the model come with them, and step, optimizer "
           "and learning rate begin anew; empty = random weights",
       .is_path = true,
       .tried = {"", "a.pt"}},
      {.name = "distill_from",
       .target = &c.distillation.from,
       .help =
           "a checkpoint of gpt-train, or a folder or FILE.safetensors of Hugging Face's, with the same tokenizer: a larger model whose "
           "predictions the run learns beside its text, as after gpt-prune; empty or none = the text alone",
       .aliases = {{"teacher"}, {"teacher_model"}},
       .is_path = true,
       .tried = {"", "larger.pt"}},
      {.name = "distill_weight",
       .target = &c.distillation.weight,
       .help =
           "share of the training loss that is the divergence from the predictions of distill_from; the rest is the cross entropy with "
           "the text; 1 = no text",
       .min = 0,
       .max = 1,
       .tried = {"0.5", "0"}},
      {.name = "distill_temperature",
       .target = &c.distillation.temperature,
       .help =
           "what the logits of both models are divided by for that divergence, which is multiplied by its square; above 1, unlikely "
           "tokens count for more",
       .min = 0.1,
       .max = 100},
      {.name = "on_event",
       .target = command_words(c.on_event),
       .help =
           "a program and its arguments that are started when the run begins, has a new best validation loss, warns, stops or ends, with "
           "a JSON object as standard input, such as [curl, -d, \"@-\", https://ntfy.sh/my-topic]; it runs without a shell, is not waited "
           "for, and is remembered nowhere; [] = none"},
      {.name = "max_skipped_steps",
       .target = &c.cadence.max_skipped_steps,
       .help =
           "consecutive updates skipped, because of non-finite numbers or a spike, after which the run stops; counted with each "
           "log line",
       .min = 1,
       .max = 1e9},
      {.name = "memory_check",
       .target = &c.execution.memory_check,
       .help =
           "refuse to start a run that cannot fit into memory; on a CPU, also end a run that outgrows it, before the kernel "
           "kills it"},
  };
}

std::vector<Option> divergence(TrainingConfig& c) { return options(c.cadence.divergence); }

}  // namespace

std::vector<Option> options(TrainingConfig& c) {
  std::vector<Option> rows = batch_and_precision(c);
  for (Option& row : options(c.quantized)) {
    row.safe_on_resume = row.name == "quantized_forward_force";
    rows.push_back(std::move(row));
  }
  for (Option& row : options(c.tuning)) rows.push_back(std::move(row));
  for (auto group : {schedule, optimizer, execution, cadence, divergence}) {
    for (Option& row : group(c)) {
      // With other weights, or another state of the optimizer, it is another run.
      row.safe_on_resume = row.name != "init_from" && row.name != "optimizer";
      rows.push_back(std::move(row));
    }
  }
  for (Option& row : rows) row.section = "training";
  return rows;
}

}  // namespace gpt::config

namespace gpt {

int64_t TrainingConfig::sequence_length_for(const ModelConfig& model) const {
  return sequence_length.value_or(model.block_size);
}

ModelConfig in_training(ModelConfig model, const TrainingConfig& training) {
  model.block_size = training.sequence_length_for(model);
  return model;
}

}  // namespace gpt
