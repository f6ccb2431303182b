#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "gpt/config/load.h"
#include "gpt/config/pipeline_parallel.h"
#include "gpt/config/tensor_parallel.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "limits.h"

namespace gpt::config {
namespace {

// Throws contradictions, placed at the first of their keys that a flag has set, or else at the first that was written.
class Faults {
 public:
  Faults(const std::string& origin, const Origins& origins) : origin_(origin), origins_(origins) {}

  [[noreturn]] void fail(std::initializer_list<const char*> keys, const std::string& what) const {
    const std::string* where = &origin_;
    for (const char* key : keys) {
      const auto found = origins_.find(key);
      if (found == origins_.end()) continue;
      const bool is_flag = found->second.starts_with("--");
      if (is_flag || where == &origin_) where = &found->second;
      if (is_flag) break;
    }
    throw Error(ExitCode::config, *where + ": " + what);
  }

  // For a fault of one key alone, whose flag need not be named twice.
  [[noreturn]] void fail_value(const std::string& key, const std::string& what) const {
    const auto found = origins_.find(key);
    const std::string& where = found == origins_.end() ? origin_ : found->second;
    throw Error(ExitCode::config,
                where == "--" + key ? fmt::format("{} {}", where, what) : fmt::format("{}: '{}' {}", where, key, what));
  }

 private:
  const std::string& origin_;
  const Origins& origins_;
};

// The nearest values around `value` that satisfy the condition, as "6 or 8"; at least one exists.
template <class Condition>
std::string nearest(int64_t value, Condition holds) {
  int64_t below = value - 1, above = value + 1;
  while (below > 0 && !holds(below)) --below;
  const int64_t limit = 2 * value + 1048576;
  while (above < limit && !holds(above)) ++above;
  if (below <= 0) return fmt::format("{}", above);
  if (above >= limit) return fmt::format("{}", below);
  return fmt::format("{} or {}", below, above);
}

bool is_device(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return true;
  constexpr std::string_view kPrefix = "cuda:";
  if (device.compare(0, kPrefix.size(), kPrefix) != 0) return false;
  const std::string index = device.substr(kPrefix.size());
  return !index.empty() && index.size() <= 3 &&
         std::all_of(index.begin(), index.end(), [](unsigned char c) { return std::isdigit(c); });
}

void validate_attention_blocks(const ModelConfig& m, const Faults& faults) {
  constexpr int64_t kMultiple = 64;  // what kernels compute at a time
  if (m.attention_block % kMultiple != 0) {
    faults.fail_value("model.attention_block",
                      fmt::format("must be a multiple of {}, got {}; use {}", kMultiple, m.attention_block,
                                  nearest_multiples(m.attention_block, kMultiple)));
  }
  if (m.attention_window > 0) {
    faults.fail({"model.attention", "model.attention_window"},
                fmt::format("attention blocks chooses what a token sees, and attention_window {} hides it by distance; "
                            "set attention_window to 0, or attention to full",
                            m.attention_window));
  }
}

void validate_model(const ModelConfig& m, const Faults& faults) {
  const int64_t heads = m.heads();
  if (!m.n_head_dim && m.n_embd % heads != 0) {
    faults.fail({"model.n_embd", "model.n_head"},
                fmt::format("n_embd {} is not divisible by n_head {}; use n_embd {}, or n_head {}", m.n_embd, heads,
                            nearest(m.n_embd, [&](int64_t n) { return n % heads == 0; }),
                            nearest(heads, [&](int64_t n) { return n <= m.n_embd && m.n_embd % n == 0; })));
  }
  if (heads % m.kv_heads() != 0) {
    faults.fail({"model.n_kv_head", "model.n_head"},
                fmt::format("n_head {} is not divisible by n_kv_head {}; use n_kv_head {}", heads, m.kv_heads(),
                            nearest(m.kv_heads(), [&](int64_t n) { return n <= heads && heads % n == 0; })));
  }
  if (m.window_pattern.empty() || m.window_pattern.find_first_not_of("SL") != std::string::npos) {
    faults.fail_value("model.window_pattern",
                      fmt::format("must be letters S (windowed) and L (full), such as SSSL, got {}",
                                  in_quotes(m.window_pattern)));
  }
  if (m.attention == AttentionForm::blocks) validate_attention_blocks(m, faults);
  if (m.position != Position::rope || m.head_dim() % 2 == 0) return;
  if (m.n_head_dim) {
    faults.fail({"model.head_dim", "model.position"},
                fmt::format("position rope needs an even head size, but head_dim is {}; use head_dim {}", m.head_dim(),
                            nearest(m.head_dim(), [](int64_t n) { return n % 2 == 0; })));
  }
  faults.fail({"model.n_embd", "model.n_head", "model.position"},
              fmt::format("position rope needs an even head size, but n_embd {} / n_head {} = {}; use n_embd {}",
                          m.n_embd, heads, m.head_dim(),
                          nearest(m.n_embd, [&](int64_t n) { return n % (2 * heads) == 0; })));
}

void validate_data(const Config& config, const Faults& faults) {
  const DataConfig& d = config.data;
  const bool has_text = !d.text.empty(), has_dataset = d.dataset != DatasetName::none, has_bin = !d.bin.empty();
  if (has_text + has_dataset + has_bin > 1) {
    faults.fail({"data.dataset", "data.bin", "data.text"},
                "only one of data.text, data.dataset and data.bin can be set; keep one of them");
  }
  if (!d.metadata.empty() && !has_bin)
    faults.fail({"data.metadata"}, "metadata describes a bin; set data.bin too, or leave metadata out");
  if (!d.validation_bin.empty() && !has_bin)
    faults.fail({"data.validation_bin"},
                "validation_bin belongs to a bin; set data.bin too, or leave validation_bin out");
  if (d.max_chars > 0 && has_bin)
    faults.fail({"data.max_chars"}, "max_chars limits the characters of a text; leave it out for a bin");
  if (d.num_workers.value_or(0) > 0 && d.prefetch_factor == 0) {
    faults.fail(
        {"data.prefetch_factor", "data.num_workers"},
        fmt::format("with prefetch_factor 0, {} workers would prepare nothing; set prefetch_factor 2 or num_workers 0",
                    *d.num_workers));
  }
}

void validate_stages(const Config& config, const Faults& faults) {
  const auto fail = [&](const std::string& what) { faults.fail({"data.stages"}, what); };
  const TrainingConfig& t = config.training;
  const std::vector<Stage>& stages = config.data.stages;
  if (stages.empty() && config.data.schedule == DataSchedule::constant) return;
  const auto in_epochs = [](const Interval& interval) { return interval.unit == Interval::Unit::epochs; };
  if (t.schedule.epochs || in_epochs(t.cadence.eval_interval) || in_epochs(t.cadence.checkpoint_interval) ||
      in_epochs(t.cadence.sample_interval)) {
    fail(
        "a run in stages is measured in steps, since its files have no epoch in common; set max_steps, and intervals in steps");
  }
  const int64_t steps = t.schedule.max_steps.value_or(kDefaultMaxSteps);
  if (!stages.empty() && stages.back().from >= steps) {
    fail(fmt::format("the last stage begins at step {}, but the run has only {}", stages.back().from, steps));
  }
  for (const Stage& stage : stages) {
    if (stage.block_size && *stage.block_size > config.model.block_size) {
      fail(fmt::format("the stage from step {} has sequences of {} tokens, more than the model's block_size {}",
                       stage.from, *stage.block_size, config.model.block_size));
    }
    if (stage.attention_window.value_or(0) > config.model.attention_window) {
      fail(fmt::format(
          "the stage from step {} has a window of {} positions, more than the model's attention_window {}; a "
          "stage may only narrow it",
          stage.from, *stage.attention_window, config.model.attention_window));
    }
  }
}

void validate_training(const TrainingConfig& t, const Faults& faults) {
  if (!t.init_from.empty() && t.resume_from != "auto" && t.resume_from != "none") {
    faults.fail(
        {"training.init_from", "training.resume_from"},
        "init_from begins a new run with the weights of a checkpoint, and resume_from continues the run of one; "
        "keep one of them");
  }
  if (t.schedule.epochs && t.schedule.max_steps) {
    faults.fail({"training.max_steps", "training.epochs"},
                fmt::format("epochs {} and max_steps {} both set the length of the run; keep one", *t.schedule.epochs,
                            *t.schedule.max_steps));
  }
  if (t.schedule.lr_schedule != LrSchedule::constant && !t.schedule.finds_learning_rate &&
      t.schedule.min_lr > t.schedule.learning_rate) {
    if (t.schedule.learning_rate == 0) faults.fail_value("training.learning_rate", "must be above 0, got 0");
    faults.fail({"training.min_lr", "training.learning_rate"},
                fmt::format("min_lr {} is above learning_rate {}; set min_lr to a tenth of it", t.schedule.min_lr,
                            t.schedule.learning_rate));
  }
  if (t.schedule.lr_schedule == LrSchedule::plateau && t.cadence.eval_interval.count == 0) {
    faults.fail(
        {"training.lr_schedule", "training.eval_interval"},
        "lr_schedule plateau follows the validation loss, but eval_interval is 0; set it to a number of steps, such as 500");
  }
  const int64_t steps = t.schedule.max_steps.value_or(kDefaultMaxSteps);
  if (!t.schedule.epochs && t.schedule.warmup_steps.value_or(0) >= steps) {
    faults.fail({"training.warmup_steps", "training.max_steps"},
                fmt::format("warmup_steps {} must be less than max_steps {}; a tenth of it is usual",
                            *t.schedule.warmup_steps, steps));
  }
  if (!t.optimizer.fused_adamw && t.optimizer.state_dtype != StateDtype::float32) {
    faults.fail({"training.optimizer_state_dtype", "training.fused_adamw"},
                "only the kernel of fused_adamw updates a state of 8 or 16 bits; set optimizer_state_dtype float32 or "
                "fused_adamw true");
  }
  if (!t.optimizer.fused_adamw && t.optimizer.offload > 0) {
    faults.fail({"training.offload_optimizer", "training.fused_adamw"},
                "only the kernel of fused_adamw reaches a state in the memory of the host; set offload_optimizer 0 or "
                "fused_adamw true");
  }
  if (!t.optimizer.fused_adamw && !t.precision.master_weights) {
    faults.fail(
        {"training.master_weights", "training.fused_adamw"},
        "only the kernel of fused_adamw updates weights of 16 bits alone; set master_weights true or fused_adamw "
        "true");
  }
  if (!t.optimizer.fused_adamw && t.optimizer.has_muon()) {
    faults.fail(
        {"training.optimizer", "training.fused_adamw"},
        "fused_adamw false is for comparison with AdamW's own kernel alone; set fused_adamw true or optimizer adamw");
  }
  if (!t.precision.use_amp && (t.precision.dtype == Dtype::bfloat16 || t.precision.dtype == Dtype::float16)) {
    faults.fail({"training.use_amp", "training.dtype"},
                "use_amp false means float32 (or tf32), but dtype is a 16-bit type; set use_amp true or dtype float32");
  }
  const GradientCheckpointing level = t.execution.gradient_checkpointing;
  if (!t.execution.use_compile &&
      (level == GradientCheckpointing::activation || level == GradientCheckpointing::norm)) {
    faults.fail(
        {"training.gradient_checkpointing", "training.use_compile"},
        fmt::format(
            "gradient_checkpointing {} needs the operators of use_compile true; set that, or selective or block",
            level == GradientCheckpointing::norm ? "norm" : "activation"));
  }
  if (!t.execution.use_compile && t.execution.swap_activations != 0) {
    faults.fail(
        {"training.swap_activations", "training.use_compile"},
        "swap_activations needs use_compile's operators, which keep each tensor once; set use_compile true, or swap_activations 0");
  }
}

// What a rollback goes back to must not depend on how fast the machine is.
void validate_divergence(const CadenceConfig& cadence, const Faults& faults) {
  Interval interval = cadence.checkpoint_interval;
  if (!cadence.divergence.goes_back() || (interval.count > 0 && interval.unit != Interval::Unit::seconds)) return;
  faults.fail({"training.on_divergence", "training.checkpoint_interval"},
              fmt::format("on_divergence rollback goes back to checkpoints that are saved after a number of steps, but "
                          "checkpoint_interval is {}; set it to a number of steps, such as 500",
                          value_text(&interval)));
}

void validate_automatic_batch(const Config& config, const Faults& faults) {
  const TrainingConfig& t = config.training;
  if (t.gradient_accumulation_steps != 1) {
    faults.fail({"training.gradient_accumulation_steps", "training.batch_size"},
                fmt::format("batch_size auto chooses the number of micro-steps too, but gradient_accumulation_steps is "
                            "{}; leave that out, or set batch_size to a number",
                            t.gradient_accumulation_steps));
  }
  if (!t.total_batch_size) {
    faults.fail({"training.batch_size"},
                "batch_size auto needs total_batch_size, the sequences per update, because they decide how the run "
                "learns; set total_batch_size, such as 64, or batch_size to a number");
  }
  // A stage of shorter sequences has more of them in a micro-batch: rounded, their number would depend on the choice.
  for (const Stage& stage : config.data.stages) {
    if (config.model.block_size % stage.block_size.value_or(config.model.block_size) == 0) continue;
    faults.fail({"data.stages", "training.batch_size"},
                fmt::format("with batch_size auto the sequences of a stage must divide the model's block_size {}, but "
                            "the stage from step {} has {} tokens; set batch_size to a number",
                            config.model.block_size, stage.from, *stage.block_size));
  }
}

void validate_batch(const Config& config, const Faults& faults) {
  const TrainingConfig& t = config.training;
  const int64_t batch_size = t.batch_size, steps = t.gradient_accumulation_steps;
  if (batch_size == 0) return validate_automatic_batch(config, faults);
  if (!t.total_batch_size) return;
  const int64_t total = *t.total_batch_size;
  if (total % batch_size != 0) {
    faults.fail(
        {"training.batch_size", "training.total_batch_size"},
        fmt::format("total_batch_size {} is not divisible by batch_size {}; use total_batch_size {}, or batch_size {}",
                    total, batch_size, nearest(total, [&](int64_t n) { return n % batch_size == 0; }),
                    nearest(batch_size, [&](int64_t n) { return n <= total && total % n == 0; })));
  }
  if (batch_size * steps != total) {
    faults.fail({"training.gradient_accumulation_steps", "training.total_batch_size"},
                fmt::format("batch_size {} times gradient_accumulation_steps {} is {}, not total_batch_size {}; leave "
                            "gradient_accumulation_steps out, or set it to {}",
                            batch_size, steps, batch_size * steps, total, total / batch_size));
  }
}

void validate_attention(const Config& config, const Faults& faults) {
  if (config.model.attention == AttentionForm::blocks && config.data.document_mask) {
    faults.fail(
        {"model.attention", "data.document_mask"},
        "attention blocks chooses by means over whole blocks, in which documents end and begin, and document_mask "
        "keeps documents apart; set document_mask to false, or attention to full");
  }
  const double dropout = config.model.dropout;
  if (config.training.execution.attention != AttentionKernel::cudnn || cudnn_knows_dropout(dropout)) return;
  faults.fail({"training.attention", "model.dropout"},
              fmt::format("attention cudnn would round dropout {} to a sixteenth; set attention auto, or dropout {}",
                          dropout, std::round(16 * dropout) / 16));
}

void validate_quantized(const Config& config, const Faults& faults) {
  const QuantizedConfig& q = config.training.quantized;
  const DistributedConfig& d = config.distributed;
  if (!q.is_on()) return;
  const char* const key = "training.quantized_forward";
  if (!config.training.execution.use_compile) {
    faults.fail(
        {key, "training.use_compile"},
        "quantized_forward needs the operators of use_compile; set use_compile to true, or quantized_forward to none");
  }
  if (config.training.precision.amp_mode == AmpMode::autocast && config.training.precision.use_amp) {
    faults.fail(
        {key, "training.amp_mode"},
        "quantized_forward does not go with amp_mode autocast, which casts what products take; set amp_mode to auto, or "
        "quantized_forward to none");
  }
  if (d.zero > 2) {
    faults.fail(
        {key, "distributed.zero"},
        "quantized_forward keeps weights in 8 bits, which zero 3 divides; set zero to 2, or quantized_forward to none");
  }
  if (d.tensor_parallel > 1) {
    faults.fail({key, "distributed.tensor_parallel"},
                "quantized_forward rounds whole rows, which tensor_parallel divides; set tensor_parallel to 1, or "
                "quantized_forward to none");
  }
  if (2 * q.skip >= config.model.n_layer) {
    faults.fail(
        {"training.quantized_forward_skip", key, "model.n_layer"},
        fmt::format(
            "quantized_forward leaves out {} at each end, and the model has {}; set quantized_forward_skip to {}{}",
            plural(q.skip, "block"), plural(config.model.n_layer, "block"), (config.model.n_layer - 1) / 2,
            config.model.n_layer > 2 ? " or less" : ""));
  }
}

// What the processes can divide among themselves.
void validate_distributed(const Config& config, const Faults& faults) {
  const DistributedConfig& d = config.distributed;
  const TrainingConfig& t = config.training;
  if (const std::string why = tensor_parallel_obstacle(config); !why.empty())
    faults.fail({"distributed.tensor_parallel"}, why);
  if (const std::string why = pipeline_parallel_obstacle(config); !why.empty())
    faults.fail({"distributed.pipeline_parallel"}, why);
  const auto is_power_of_two = [](int64_t n) { return (n & (n - 1)) == 0; };
  if (!is_power_of_two(d.lanes)) {
    faults.fail({"distributed.lanes"}, fmt::format("lanes must be a power of two, got {}; set it to {}", d.lanes,
                                                   nearest(d.lanes, is_power_of_two)));
  }
  if (d.lanes > 1 && d.lanes % d.data_processes() != 0) {
    faults.fail(
        {"distributed.lanes", "distributed.processes"},
        d.model_processes() == 1
            ? fmt::format(
                  "lanes {} cannot be divided among {} processes; set processes to a power of two of at most {}",
                  d.lanes, d.processes, d.lanes)
            : fmt::format(
                  "lanes {} cannot be divided among {} groups of processes; set processes to {}, which have a model "
                  "between them, times a power of two of at most {}",
                  d.lanes, d.data_processes(), d.model_processes(), d.lanes));
  }
  if (d.lanes > 1 && t.precision.gradient_dtype == GradientDtype::bfloat16) {
    faults.fail({"distributed.lanes", "training.gradient_dtype"},
                "lanes give equal bits with float32 gradients only; set gradient_dtype to float32, or leave lanes out");
  }
  if (d.lanes > 1 && d.reduce_dtype == ReduceDtype::bfloat16) {
    faults.fail(
        {"distributed.lanes", "distributed.reduce_dtype"},
        "lanes give equal bits only where float32 gradients are sent; leave out lanes or reduce_dtype bfloat16");
  }
  if (d.zero > 0 && !t.optimizer.fused_adamw) {
    faults.fail({"distributed.zero", "training.fused_adamw"},
                "only fused AdamW can update a part of the parameters; set fused_adamw to true, or zero to 0");
  }
  if (d.zero > 1 && !t.execution.use_compile) {
    faults.fail(
        {"distributed.zero", "training.use_compile"},
        fmt::format(
            "zero {} needs use_compile's operators, which tell when a layer's gradients are complete; set zero to "
            "1, or use_compile to true",
            d.zero));
  }
  if (d.zero > 2 && t.optimizer.has_muon()) {
    faults.fail({"distributed.zero", "training.optimizer"},
                "zero 3 divides matrices, and Muon needs whole ones; set zero to 2, or optimizer to adamw");
  }
  if (d.zero > 2 && !t.freeze.empty()) {
    faults.fail({"distributed.zero", "training.freeze"},
                "zero 3 divides the weights of blocks that are trained as a whole; set zero to 2, or leave freeze out");
  }
  if (d.min_processes && d.processes > 0 && *d.min_processes > d.processes) {
    faults.fail({"distributed.min_processes", "distributed.processes"},
                fmt::format("min_processes {} is more than processes {}", *d.min_processes, d.processes));
  }
  const int64_t groups = d.processes == 0 ? 0 : d.data_processes(),
                sequences = t.batch_size == 0 ? t.total_batch_size.value_or(groups)
                                              : t.batch_size * t.gradient_accumulation_steps;
  if (const int64_t parts = std::max(d.lanes, groups); sequences < parts) {
    faults.fail({d.lanes > groups ? "distributed.lanes" : "distributed.processes", "training.batch_size"},
                fmt::format("an update has {}, too few for {} {}: raise batch_size or total_batch_size",
                            plural(sequences, "sequence"), parts,
                            d.lanes > groups           ? "lanes"
                            : d.model_processes() == 1 ? "processes"
                                                       : "groups of processes"));
  }
}

}  // namespace

void validate(const Config& config, const std::string& origin, const Origins& origins) {
  const Faults faults(origin, origins);
  if (!is_device(config.device))
    faults.fail_value("device", fmt::format("must be auto, cpu, cuda or cuda:N, got {}{}", in_quotes(config.device),
                                            config.device.starts_with("gpu")
                                                ? fmt::format("; did you mean 'cuda{}'?", config.device.substr(3))
                                                : ""));
  if (config.output_dir.empty()) faults.fail_value("output_dir", "must name a folder, got ''");
  validate_model(config.model, faults);
  validate_data(config, faults);
  validate_batch(config, faults);
  validate_distributed(config, faults);
  validate_stages(config, faults);
  validate_training(config.training, faults);
  validate_quantized(config, faults);
  validate_divergence(config.training.cadence, faults);
  validate_attention(config, faults);
  // A run writes it out, and reads it again when it is resumed.
  if (const size_t bytes = dump(config).size(); bytes > kMostBytes) {
    throw Error(ExitCode::config,
                fmt::format("{}: written out, the configuration has {} bytes, and at most {} could be read "
                            "again; shorten its texts and lists",
                            origin, with_commas(static_cast<int64_t>(bytes)),
                            with_commas(static_cast<int64_t>(kMostBytes))));
  }
}

bool is_valid(const Config& config) {
  try {
    validate(config, "");
    return true;
  } catch (const Error&) { return false; }
}

void require_data(const Config& config, const std::string& origin) {
  if (!config.data.text.empty() || config.data.dataset != DatasetName::none || !config.data.bin.empty()) return;
  throw Error(
      ExitCode::config,
      (origin.empty() ? "" : origin + ": ") +
          "no data to train on; name a text with --data FILE, or tokens with --bin FILE, or use --dataset shakespeare");
}

}  // namespace gpt::config
