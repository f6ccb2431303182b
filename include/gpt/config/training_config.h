// The run: one plain struct for each part of it. In YAML all of them are keys of `training:`.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/divergence_config.h"
#include "gpt/config/interval.h"
#include "gpt/config/quantized_config.h"
#include "gpt/config/schedule_config.h"
#include "gpt/config/tuning_config.h"

namespace gpt {

struct ModelConfig;

enum class Dtype { automatic, float32, tf32, bfloat16, float16 };
enum class AmpMode { automatic, autocast, end_to_end };
// YAML: auto | default | reduce-overhead | max-autotune
enum class CompileMode { automatic, standard, reduce_overhead, max_autotune };
enum class AttentionKernel { automatic, cudnn, flash, efficient, math };
enum class AsyncCheckpoint { automatic, on, off };  // YAML: auto | true | false
// Some of cuDNN's kernels can represent the probability of dropout only in sixteenths and silently round any other, although the remaining
// values are scaled for the probability that was asked for. LibTorch refuses that in versions after 2.11 (pytorch/pytorch#174245).
inline bool cudnn_knows_dropout(double probability) { return std::floor(16 * probability) == 16 * probability; }

// What the backward pass computes again instead of keeping it: ever more.
enum class GradientCheckpointing { none, activation, norm, selective, block };
enum class OptimizerKind { adamw, muon, normuon };
enum class DecaySchedule { constant, linear, cosine };  // of the weight decay: the latter two down to 0
enum class StateDtype { float32, bfloat16, int8 };      // the type of AdamW's moments and of Muon's momentum
enum class GradientDtype { automatic, float32, bfloat16 };
enum class EvaluatedWeights { weights, averages };  // what validations, tasks and samples take

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;  // of the blocks' matrices; all else has AdamW
  double muon_momentum = 0.95;
  double weight_decay = 0.1;
  DecaySchedule decay_schedule = DecaySchedule::constant;
  bool cautious_weight_decay = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double gradient_clip = 1.0;  // 0 = off
  bool fused_adamw = true;
  StateDtype state_dtype = StateDtype::float32;
  bool float32_embedding_state = false;  // whatever state_dtype is
  double offload = 0;                    // the share of the state that is in the memory of the host
  double ema_decay = 0;                  // of the exponential averages of the weights; 0 = there are none
  double average_after = 0.1;            // the share of the run that goes before them

  bool has_muon() const { return kind != OptimizerKind::adamw; }
  bool has_averages() const { return ema_decay > 0; }
};

struct PrecisionConfig {
  bool use_amp = true;
  Dtype dtype = Dtype::automatic;
  AmpMode amp_mode = AmpMode::automatic;
  bool master_weights = true;  // float32 weights beside those of 16 bits that the model computes with
  GradientDtype gradient_dtype = GradientDtype::automatic;
};

struct ExecutionConfig {
  bool use_compile = true;
  CompileMode compile_mode = CompileMode::automatic;
  AttentionKernel attention = AttentionKernel::automatic;
  int64_t loss_chunk_rows = 0;  // 0 = see ClassifierOptions
  GradientCheckpointing gradient_checkpointing = GradientCheckpointing::none;
  std::optional<int64_t> swap_activations = 0;  // of how many blocks; nothing: as many as it takes to fit
  bool deterministic = false;
  bool memory_check = true;  // refuse to start a run that cannot fit into memory
};

// How LibTorch's allocator manages the memory of a GPU.
struct AllocatorConfig {
  double memory_fraction = 1.0;     // the share of the device that the run may take
  bool expandable_segments = true;  // segments that grow, so that less is lost between tensors of other sizes
  bool release_memory = false;      // give back what is unused between training, validation and samples
};

// A second, trained model that the run learns from, beside its text.
struct DistillationConfig {
  std::string from;        // a checkpoint, or a model of Hugging Face's; empty: there is none
  double weight = 0.5;     // the teacher's share of the loss
  double temperature = 1;  // as ops::Distillation has it
  // The model that `from` holds, which is no key: run::take_teacher() reads it. Null where there is none or it could not be read.
  std::shared_ptr<const ModelConfig> teacher;
};

// When the run logs, evaluates, samples, saves and gives up.
struct CadenceConfig {
  int64_t log_interval = 100;  // steps
  bool log_norms = false;      // of each layer, at logged steps
  Interval eval_interval{500, Interval::Unit::steps};
  std::optional<int64_t> eval_batches;  // auto: enough for a standard error below 0.5 %; 0 = the whole validation split
  std::vector<std::string> eval_tasks;  // NAME:FILE each, as evaluate/task.h has it
  int64_t eval_task_limit = 200;        // the first so many examples of each; 0 = all
  EvaluatedWeights evaluates = EvaluatedWeights::weights;
  int64_t patience = 0;  // evaluations without a new best that end the run; 0 = none do
  Interval checkpoint_interval{600, Interval::Unit::seconds};  // the only one that may be a time
  AsyncCheckpoint async_checkpoint = AsyncCheckpoint::automatic;
  int64_t keep_last = 0;  // numbered checkpoints kept beside ckpt.pt and ckpt_best.pt
  Interval sample_interval{0, Interval::Unit::run};
  int64_t sample_tokens = 200;
  std::string sample_prompt;  // empty: what the tokenizer starts a text with, or the first question of conversations
  int64_t max_skipped_steps = 10;  // skipped updates in a row at which a log line stops the run
  DivergenceConfig divergence;
};

struct TrainingConfig {
  int64_t batch_size = 64;  // sequences in a micro-step; 0 = auto, until it is chosen
  // Tokens of a sequence that is learned from. Nothing: as many as the model sees at once, unless the program has chosen.
  std::optional<int64_t> sequence_length;
  int64_t gradient_accumulation_steps = 1;
  std::optional<int64_t> total_batch_size;  // sequences per update, from which the number of micro-steps follows
  double label_smoothing = 0.0;
  std::string resume_from = "auto";  // auto | none | a checkpoint's path
  std::string init_from;             // a checkpoint whose weights a new run begins with; empty: random ones
  // A program and its arguments, started for what happens on the way (report/event_command.h); empty: none. gpt-train takes it out before
  // anything else has the configuration, so that neither a checkpoint nor a report has it.
  std::vector<std::string> on_event;
  DistillationConfig distillation;
  TuningConfig tuning;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  QuantizedConfig quantized;
  ExecutionConfig execution;
  AllocatorConfig allocator;
  CadenceConfig cadence;

  int64_t sequence_length_for(const ModelConfig& model) const;
};

// The model with a block_size of training.sequence_length, for what counts operations and memory of the passes. Its parameters are those of
// another one: learned positions are fewer, and stages may be divided otherwise.
ModelConfig in_training(ModelConfig model, const TrainingConfig& training);

namespace config {
struct Option;
std::vector<Option> options(TrainingConfig& config);  // a row for each key
}  // namespace config

}  // namespace gpt
