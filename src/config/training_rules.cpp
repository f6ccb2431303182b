// What the length of a run, its learning rate, its optimizer and its operators ask of each other.
#include <fmt/format.h>

#include "gpt/config/value.h"
#include "rule.h"

namespace gpt::config {
namespace {

constexpr const char *kFused = "training.fused_adamw", *kCompile = "training.use_compile",
                     *kCheckpointing = "training.gradient_checkpointing", *kLoraRank = "training.lora_rank",
                     *kLoraBase = "training.lora_base", *kEmaDecay = "training.ema_decay",
                     *kEvaluate = "training.evaluate";

bool needs_own_operators(GradientCheckpointing level) {
  return level == GradientCheckpointing::activation || level == GradientCheckpointing::norm;
}

bool has_narrow_base(const Config& config) { return config.training.tuning.lora.base != BaseType::automatic; }

int64_t length_of(const ScheduleConfig& schedule) { return schedule.max_steps.value_or(kDefaultMaxSteps); }

bool has_wrong_ends(const ScheduleConfig& schedule) {
  return schedule.lr_schedule != LrSchedule::constant && !schedule.finds_learning_rate &&
         schedule.min_lr > schedule.learning_rate;
}

// What a rollback goes back to must not depend on how fast the machine is.
bool counts_updates(const Interval& interval) { return interval.count > 0 && interval.unit != Interval::Unit::seconds; }

std::vector<RefusalRule> length_rules() {
  return {
      {.keys = {"training.init_from", "training.resume_from"},
       .when =
           [](const Config& c, const Facts&) {
             return !c.training.init_from.empty() && c.training.resume_from != "auto" &&
                    c.training.resume_from != "none";
           },
       .why = "init_from begins a new run with the weights of a checkpoint, and resume_from continues the run of one",
       .cures = {leave_out("training.resume_from"), leave_out("training.init_from")},
       .advice = "keep one of them"},
      {.keys = {"training.max_steps", "training.epochs"},
       .when = [](const Config& c,
                  const Facts&) { return c.training.schedule.epochs && c.training.schedule.max_steps; },
       .why =
           [](const Config& c) {
             return fmt::format("epochs {} and max_steps {} both set the length of the run",
                                *c.training.schedule.epochs, *c.training.schedule.max_steps);
           },
       .cures = {leave_out("training.epochs"), leave_out("training.max_steps")},
       .advice = "keep one"},
      {.keys = {"training.max_time", "data.stages", "data.schedule"},
       .when =
           [](const Config& c, const Facts&) {
             return c.training.schedule.has_time() &&
                    (!c.data.stages.empty() || c.data.schedule != DataSchedule::constant);
           },
       .why = "stages begin after numbers of steps, and how many steps fit into max_time is not known before",
       .cures = {Cure{{"data.stages", std::nullopt}, {"data.schedule", std::nullopt}}, leave_out("training.max_time")},
       .advice = "set the length in max_steps instead"},
      {.keys = {"training.min_lr", "training.learning_rate"},
       .when = [](const Config& c, const Facts&) { return has_wrong_ends(c.training.schedule); },
       .why =
           [](const Config& c) {
             return fmt::format("min_lr {} is above learning_rate {}", c.training.schedule.min_lr,
                                c.training.schedule.learning_rate);
           },
       .cures =
           [](const Config& c) {
             return std::vector<Cure>{
                 set_to("training.min_lr", fmt::format("{}", c.training.schedule.learning_rate / 10))};
           },
       .advice = "set min_lr to a tenth of it"},
      {.keys = {"training.lr_schedule", "training.eval_interval"},
       .when =
           [](const Config& c, const Facts&) {
             return c.training.schedule.lr_schedule == LrSchedule::plateau &&
                    c.training.cadence.eval_interval.count == 0;
           },
       .why = "lr_schedule plateau follows the validation loss, but eval_interval is 0",
       .cures = {set_to("training.eval_interval", "500 steps"), set_to("training.lr_schedule", "cosine")},
       .advice = "set it to a number of steps, such as 500"},
      {.keys = {"training.lr_schedule", "data.validation_fraction"},
       .when =
           [](const Config& c, const Facts& facts) {
             return c.training.schedule.lr_schedule == LrSchedule::plateau && facts.has_validation == false;
           },
       .why = "lr_schedule plateau follows the validation loss, and the data has no validation split",
       .cures = {set_to("training.lr_schedule", "cosine")},
       .advice = "set data.validation_fraction, or take another schedule"},
      {.keys = {"training.warmup_steps", "training.max_steps"},
       .when =
           [](const Config& c, const Facts&) {
             const ScheduleConfig& schedule = c.training.schedule;
             return !schedule.epochs && !schedule.has_time() &&
                    schedule.warmup_steps.value_or(0) >= length_of(schedule);
           },
       .why =
           [](const Config& c) {
             return fmt::format("warmup_steps {} must be less than max_steps {}", *c.training.schedule.warmup_steps,
                                length_of(c.training.schedule));
           },
       .cures = {leave_out("training.warmup_steps")},
       .advice = "a tenth of it is usual"},
  };
}

std::vector<RefusalRule> tuning_rules() {
  return {
      {.keys = {kLoraRank, "training.freeze"},
       .when = [](const Config& c,
                  const Facts&) { return c.training.tuning.lora.is_on() && !c.training.tuning.freeze.empty(); },
       .why = "with lora_rank the weights of the model stay as they are, unless lora_also_train names them",
       .cures = {leave_out("training.freeze"), leave_out(kLoraRank)},
       .advice = "leave freeze out, and name the products that have adapters in lora_targets"},
      {.keys = {kLoraRank, "training.optimizer"},
       .when = [](const Config& c,
                  const Facts&) { return c.training.tuning.lora.is_on() && c.training.optimizer.has_muon(); },
       .why = "Muon makes each update of a matrix orthogonal, which the two factors of an adapter are not meant for",
       .cures = {set_to("training.optimizer", "adamw"), leave_out(kLoraRank)}},
      {.keys = {kLoraBase, "device"},
       .when = [](const Config& c, const Facts& facts) { return has_narrow_base(c) && facts.is_cpu == false; },
       .why =
           "lora_base is unpacked by a CPU, and a GPU keeps the weights that adapters go with in the type that it computes with",
       .cures = {leave_out(kLoraBase), set_to("device", "cpu")}},
      {.keys = {kLoraBase, "distributed.pipeline_parallel"},
       .when = [](const Config& c, const Facts&) { return has_narrow_base(c) && c.distributed.pipeline_parallel > 1; },
       .why = "lora_base packs the weights of a whole model, of which each stage has some",
       .cures = {leave_out(kLoraBase), set_to("distributed.pipeline_parallel", "1")}},
      {.keys = {kLoraBase, "training.quantized_forward"},
       .when = [](const Config& c, const Facts&) { return has_narrow_base(c) && c.training.quantized.is_on(); },
       .why =
           "quantized_forward makes codes of weights that lora_base has as codes already, with scales of other groups",
       .cures = {leave_out(kLoraBase), set_to("training.quantized_forward", "none")}},
  };
}

std::vector<RefusalRule> optimizer_rules() {
  const auto without_kernel = [](bool (*is_on)(const TrainingConfig&)) {
    return [is_on](const Config& c, const Facts&) { return !c.training.optimizer.fused_adamw && is_on(c.training); };
  };
  return {
      {.keys = {"training.optimizer_state_dtype", kFused},
       .when = without_kernel([](const TrainingConfig& t) { return t.optimizer.state_dtype != StateDtype::float32; }),
       .why = "only the kernel of fused_adamw updates a state of 8 or 16 bits",
       .cures = {set_to("training.optimizer_state_dtype", "float32"), set_to(kFused, "true")}},
      {.keys = {"training.offload_optimizer", kFused},
       .when = without_kernel([](const TrainingConfig& t) { return t.optimizer.offload > 0; }),
       .why = "only the kernel of fused_adamw reaches a state in the memory of the host",
       .cures = {set_to("training.offload_optimizer", "0"), set_to(kFused, "true")}},
      {.keys = {"training.master_weights", kFused},
       .when = without_kernel([](const TrainingConfig& t) { return !t.precision.master_weights; }),
       .why = "only the kernel of fused_adamw updates weights of 16 bits alone",
       .cures = {set_to("training.master_weights", "true"), set_to(kFused, "true")}},
      {.keys = {"training.optimizer", kFused},
       .when = without_kernel([](const TrainingConfig& t) { return t.optimizer.has_muon(); }),
       .why = "fused_adamw false is for comparison with AdamW's own kernel alone",
       .cures = {set_to("training.optimizer", "adamw"), set_to(kFused, "true")}},
      {.keys = {"training.offload_optimizer", "device"},
       .when = [](const Config& c,
                  const Facts& facts) { return facts.is_cpu == true && c.training.optimizer.offload > 0; },
       .why =
           [](const Config& c) {
             return fmt::format(
                 "offload_optimizer is {}, but on a CPU the optimizer's state is in the memory of the host anyway",
                 c.training.optimizer.offload);
           },
       .cures = {set_to("training.offload_optimizer", "0"), set_to("device", "cuda")},
       .advice = "set it to 0, and training.use_8bit to true to make the state smaller"},
  };
}

std::vector<RefusalRule> average_rules() {
  const auto evaluates = [](const TrainingConfig& t) { return t.cadence.evaluates == EvaluatedWeights::averages; };
  return {
      {.keys = {kEvaluate, kEmaDecay},
       .when = [=](const Config& c,
                   const Facts&) { return evaluates(c.training) && !c.training.optimizer.has_averages(); },
       .why = "evaluate takes the averages of the weights, and with an ema_decay of 0 there are none",
       .cures = {set_to(kEmaDecay, "0.999"), set_to(kEvaluate, "weights")}},
      {.keys = {kEvaluate, "training.master_weights"},
       .when = [=](const Config& c,
                   const Facts&) { return evaluates(c.training) && !c.training.precision.master_weights; },
       .why = "averages of float32 and weights that are kept in 16 bits alone cannot change places",
       .cures = {set_to("training.master_weights", "true"), set_to(kEvaluate, "weights")}},
      {.keys = {kEmaDecay, "distributed.pipeline_parallel"},
       .when =
           [](const Config& c, const Facts&) {
             const bool is_rounded_at_random =
                 c.training.optimizer.state_dtype == StateDtype::bfloat16 || !c.training.precision.master_weights;
             return c.training.optimizer.has_averages() && is_rounded_at_random && c.model.tie_weights &&
                    c.distributed.pipeline_parallel > 1;
           },
       .why =
           "the first and the last stage both have the embeddings of a tied head, and round them at random in 16 bits, so that their "
           "averages would differ",
       .cures = {Cure{{"training.optimizer_state_dtype", "float32"}, {"training.master_weights", "true"}},
                 set_to(kEmaDecay, "0"), set_to("distributed.pipeline_parallel", "1")}},
  };
}

std::vector<RefusalRule> operator_rules() {
  return {
      {.keys = {kCheckpointing, kCompile},
       .when =
           [](const Config& c, const Facts&) {
             return !c.training.execution.use_compile &&
                    needs_own_operators(c.training.execution.gradient_checkpointing);
           },
       .why =
           [](const Config& c) {
             return fmt::format("gradient_checkpointing {} needs the operators of use_compile",
                                c.training.execution.gradient_checkpointing == GradientCheckpointing::norm
                                    ? "norm"
                                    : "activation");
           },
       .cures = {set_to(kCompile, "true"), set_to(kCheckpointing, "none"), set_to(kCheckpointing, "selective"),
                 set_to(kCheckpointing, "block")}},
      {.keys = {"training.swap_activations", kCompile},
       .when =
           [](const Config& c, const Facts&) {
             return !c.training.execution.use_compile && c.training.execution.swap_activations != 0;
           },
       .why = "swap_activations needs use_compile's operators, which keep each tensor once",
       .cures = {set_to(kCompile, "true"), set_to("training.swap_activations", "0")}},
      {.keys = {"training.swap_activations", "device"},
       .when = [](const Config& c,
                  const Facts& facts) { return facts.is_cpu == true && c.training.execution.swap_activations != 0; },
       .why = "swap_activations needs a GPU: on a CPU activations are in the memory of the host anyway",
       .cures = {set_to("training.swap_activations", "0"), set_to("device", "cuda")},
       .advice = "set it to 0, and training.gradient_checkpointing to block to keep fewer"},
      {.keys = {"training.on_divergence", "training.checkpoint_interval"},
       .when =
           [](const Config& c, const Facts&) {
             const CadenceConfig& cadence = c.training.cadence;
             return cadence.divergence.goes_back() && !counts_updates(cadence.checkpoint_interval);
           },
       .why =
           [](const Config& c) {
             Interval interval = c.training.cadence.checkpoint_interval;
             return fmt::format(
                 "on_divergence rollback goes back to checkpoints that are saved after a number of steps, but "
                 "checkpoint_interval is {}",
                 value_text(&interval));
           },
       .cures = {set_to("training.checkpoint_interval", "500 steps"), set_to("training.on_divergence", "skip")},
       .advice = "set it to a number of steps, such as 500"},
  };
}

}  // namespace

std::vector<RefusalRule> training_rules() {
  std::vector<RefusalRule> rules;
  for (auto group : {length_rules, tuning_rules, optimizer_rules, average_rules, operator_rules})
    for (RefusalRule& rule : group()) rules.push_back(std::move(rule));
  return rules;
}

}  // namespace gpt::config
