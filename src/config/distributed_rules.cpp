// What processes can divide among themselves, and what must then be whole.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/core/format.h"
#include "rule.h"

namespace gpt::config {
namespace {

constexpr const char *kTensor = "distributed.tensor_parallel", *kPipeline = "distributed.pipeline_parallel",
                     *kLanes = "distributed.lanes", *kZero = "distributed.zero", *kProcesses = "distributed.processes",
                     *kLoraRank = "training.lora_rank";

bool divides_model(const Config& config) { return config.distributed.tensor_parallel > 1; }
bool has_stages(const Config& config) { return config.distributed.pipeline_parallel > 1; }

// Whether groups of `parts` processes leave some over. Where one is asked for a launcher may start more.
bool leaves_some(const Config& config, const Facts& facts, int64_t parts) {
  const int64_t processes = config.distributed.processes;
  return (processes > 1 || facts.all_are_started == true) && processes % parts != 0;
}

struct Size {
  const char* key;
  int64_t value;
};

// The first of the sizes that tensor_parallel cuts and cannot cut evenly.
std::optional<Size> uneven_size(const Config& config) {
  const ModelConfig& model = config.model;
  for (const Size& size : {Size{"model.n_head", model.heads()}, Size{"model.n_kv_head", model.kv_heads()},
                           Size{"model.n_hidden", model.hidden()}})
    if (size.value % config.distributed.tensor_parallel != 0) return size;
  return std::nullopt;
}

// How many columns a GPU's kernels draw dropout for at a time: kGroup in ops/cuda.
constexpr int64_t kColumnsOfGroup = 8;

// Whether a process would have a part of a group. Only a gated MLP drops out what processes have between them.
bool cuts_groups_of_dropout(const Config& config) {
  const ModelConfig& model = config.model;
  return divides_model(config) && model.is_gated() && model.dropout > 0 &&
         model.hidden() % (config.distributed.tensor_parallel * kColumnsOfGroup) != 0;
}

std::vector<RefusalRule> tensor_rules() {
  return {
      {.keys = {kTensor, kProcesses},
       .when =
           [](const Config& c, const Facts& facts) {
             return divides_model(c) && leaves_some(c, facts, c.distributed.tensor_parallel);
           },
       .why =
           [](const Config& c) {
             return fmt::format("tensor_parallel {} does not divide {}", c.distributed.tensor_parallel,
                                plural(c.distributed.processes, "process"));
           },
       .cures =
           [](const Config& c) {
             return set_to_each(kProcesses, nearest(c.distributed.processes,
                                                    [&](int64_t n) { return n % c.distributed.tensor_parallel == 0; }));
           }},
      {.keys = {kTensor, "training.use_compile"},
       .when = [](const Config& c, const Facts&) { return divides_model(c) && !c.training.execution.use_compile; },
       .why = "tensor_parallel needs use_compile's operators, whose dropout masks are those of the whole model",
       .cures = {set_to(kTensor, "1"), set_to("training.use_compile", "true")}},
      {.keys = {kTensor, "training.distill_from"},
       .when = [](const Config& c, const Facts&) { return divides_model(c) && !c.training.distillation.from.empty(); },
       .why = "distill_from needs all logits of a token, and tensor_parallel gives each process a part of them",
       .cures = {set_to(kTensor, "1"), leave_out("training.distill_from")}},
      {.keys = {kTensor, "training.optimizer"},
       .when = [](const Config& c, const Facts&) { return divides_model(c) && c.training.optimizer.has_muon(); },
       .why = "Muon needs whole matrices, and tensor_parallel gives each process a part of them",
       .cures = {set_to(kTensor, "1"), set_to("training.optimizer", "adamw")}},
      {.keys = {kTensor, "model.qk_norm"},
       .when = [](const Config& c, const Facts&) { return divides_model(c) && c.model.qk_norm == QkNorm::all; },
       .why =
           "qk_norm all normalizes all heads of a token together, and tensor_parallel gives each process a part of them",
       .cures = {set_to(kTensor, "1"), set_to("model.qk_norm", "heads")}},
      {.keys = {kTensor, kLoraRank},
       .when = [](const Config& c, const Facts&) { return divides_model(c) && c.training.tuning.lora.is_on(); },
       .why = "an adapter goes with a whole product, and tensor_parallel gives each process a part of it",
       .cures = {set_to(kTensor, "1"), leave_out(kLoraRank)}},
      {.keys = {kTensor, "model.n_head", "model.n_kv_head", "model.n_hidden"},
       .when = [](const Config& c, const Facts&) { return divides_model(c) && uneven_size(c); },
       .why =
           [](const Config& c) {
             const Size size = *uneven_size(c);
             return fmt::format("{} is {}, which tensor_parallel {} cannot divide evenly", size.key, size.value,
                                c.distributed.tensor_parallel);
           },
       .cures =
           [](const Config& c) {
             const Size size = *uneven_size(c);
             return either(set_to_each(size.key,
                                       nearest(size.value,
                                               [&](int64_t n) { return n % c.distributed.tensor_parallel == 0; })),
                           {set_to(kTensor, "1")});
           }},
      {.keys = {kTensor, "model.n_hidden", "model.dropout"},
       .when = [](const Config& c, const Facts& facts) { return facts.is_cpu == false && cuts_groups_of_dropout(c); },
       .why =
           [](const Config& c) {
             return fmt::format(
                 "a GPU draws the dropout of a gated MLP for groups of {} of its hidden values, and tensor_parallel {} "
                 "does not divide n_hidden {} into whole ones",
                 kColumnsOfGroup, c.distributed.tensor_parallel, c.model.hidden());
           },
       .cures =
           [](const Config& c) {
             const auto is_whole = [unit = c.distributed.tensor_parallel * kColumnsOfGroup](int64_t n) {
               return n % unit == 0;
             };
             return either(set_to_each("model.n_hidden", nearest(c.model.hidden(), is_whole)),
                           {set_to("model.dropout", "0"), set_to(kTensor, "1")});
           }},
      {.keys = {kTensor, "model.vocab_size"},
       .when =
           [](const Config& c, const Facts&) {
             return divides_model(c) && c.model.vocab_size && c.model.padded_vocab() < c.distributed.tensor_parallel;
           },
       .why =
           [](const Config& c) {
             return fmt::format("tensor_parallel {} is more than the {} rows of the vocabulary",
                                c.distributed.tensor_parallel, c.model.padded_vocab());
           },
       .cures = {set_to(kTensor, "1")},
       .advice = [](const Config& c) { return fmt::format("set it to {} or less", c.model.padded_vocab()); }},
  };
}

std::vector<RefusalRule> pipeline_rules() {
  return {
      {.keys = {kPipeline, kTensor, kProcesses},
       .when =
           [](const Config& c, const Facts& facts) {
             return has_stages(c) && leaves_some(c, facts, c.distributed.model_processes());
           },
       .why =
           [](const Config& c) {
             const DistributedConfig& d = c.distributed;
             if (d.tensor_parallel == 1)
               return fmt::format("pipeline_parallel {} does not divide {}", d.pipeline_parallel,
                                  plural(d.processes, "process"));
             return fmt::format(
                 "pipeline_parallel {} and tensor_parallel {} give each model {} processes, which do not divide {}",
                 d.pipeline_parallel, d.tensor_parallel, d.model_processes(), d.processes);
           },
       .cures =
           [](const Config& c) {
             return set_to_each(kProcesses, nearest(c.distributed.processes, [&](int64_t n) {
                                  return n % c.distributed.model_processes() == 0;
                                }));
           }},
      {.keys = {kPipeline, "model.n_layer"},
       .when = [](const Config& c,
                  const Facts&) { return has_stages(c) && c.distributed.pipeline_parallel > c.model.n_layer; },
       .why =
           [](const Config& c) {
             return fmt::format("pipeline_parallel {} is more than the {} of the model, and each stage needs one",
                                c.distributed.pipeline_parallel, plural(c.model.n_layer, "layer"));
           },
       .cures = [](const Config& c) { return set_to_each(kPipeline, {c.model.n_layer}); },
       .advice = [](const Config& c) { return fmt::format("set it to {} or less", c.model.n_layer); }},
      {.keys = {kPipeline, "training.use_compile"},
       .when = [](const Config& c, const Facts&) { return has_stages(c) && !c.training.execution.use_compile; },
       .why = "pipeline_parallel needs use_compile's operators, whose dropout masks are those of the whole model",
       .cures = {set_to(kPipeline, "1"), set_to("training.use_compile", "true")}},
      {.keys = {kPipeline, "training.swap_activations"},
       .when = [](const Config& c,
                  const Facts&) { return has_stages(c) && c.training.execution.swap_activations != 0; },
       .why =
           "swap_activations moves the activations of one micro-batch at a time, and pipeline_parallel has several on "
           "their way",
       .cures = {set_to("training.swap_activations", "0"), set_to(kPipeline, "1")}},
      {.keys = {kPipeline, "training.distill_from"},
       .when = [](const Config& c, const Facts&) { return has_stages(c) && !c.training.distillation.from.empty(); },
       .why = "distill_from needs all of a teacher beside the head, which only the last stage has",
       .cures = {set_to(kPipeline, "1"), leave_out("training.distill_from")}},
  };
}

bool is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

std::vector<RefusalRule> lane_rules() {
  return {
      {.keys = {kLanes},
       .when = [](const Config& c, const Facts&) { return !is_power_of_two(c.distributed.lanes); },
       .why = [](const Config& c) { return fmt::format("lanes must be a power of two, got {}", c.distributed.lanes); },
       .cures = [](const Config& c) { return set_to_each(kLanes, nearest(c.distributed.lanes, is_power_of_two)); }},
      {.keys = {kLanes, kProcesses},
       .when =
           [](const Config& c, const Facts&) {
             return c.distributed.lanes > 1 && c.distributed.lanes % c.distributed.data_processes() != 0;
           },
       .why =
           [](const Config& c) {
             const DistributedConfig& d = c.distributed;
             return d.model_processes() == 1
                        ? fmt::format("lanes {} cannot be divided among {} processes", d.lanes, d.processes)
                        : fmt::format("lanes {} cannot be divided among {} groups of processes", d.lanes,
                                      d.data_processes());
           },
       .cures =
           [](const Config& c) {
             return either({leave_out(kLanes)}, set_to_each(kProcesses, {c.distributed.model_processes()}));
           },
       .advice =
           [](const Config& c) {
             const DistributedConfig& d = c.distributed;
             return d.model_processes() == 1
                        ? fmt::format("set processes to a power of two of at most {}", d.lanes)
                        : fmt::format(
                              "set processes to {}, which have a model between them, times a power of two of at "
                              "most {}",
                              d.model_processes(), d.lanes);
           }},
      {.keys = {kLanes, "training.gradient_dtype"},
       .when =
           [](const Config& c, const Facts&) {
             return c.distributed.lanes > 1 && c.training.precision.gradient_dtype == GradientDtype::bfloat16;
           },
       .why = "lanes give equal bits with float32 gradients only",
       .cures = {set_to("training.gradient_dtype", "float32"), leave_out(kLanes)}},
      {.keys = {kLanes, "distributed.reduce_dtype"},
       .when =
           [](const Config& c, const Facts&) {
             return c.distributed.lanes > 1 && c.distributed.reduce_dtype == ReduceDtype::bfloat16;
           },
       .why = "lanes give equal bits only where float32 gradients are sent",
       .cures = {set_to("distributed.reduce_dtype", "float32"), leave_out(kLanes)}},
  };
}

std::vector<RefusalRule> zero_rules() {
  return {
      {.keys = {kZero, "training.fused_adamw"},
       .when = [](const Config& c,
                  const Facts&) { return c.distributed.zero > 0 && !c.training.optimizer.fused_adamw; },
       .why = "only fused AdamW can update a part of the parameters",
       .cures = {set_to("training.fused_adamw", "true"), set_to(kZero, "0")}},
      {.keys = {kZero, "training.use_compile"},
       .when = [](const Config& c,
                  const Facts&) { return c.distributed.zero > 1 && !c.training.execution.use_compile; },
       .why =
           [](const Config& c) {
             return fmt::format(
                 "zero {} needs use_compile's operators, which tell when a layer's gradients are complete",
                 c.distributed.zero);
           },
       .cures = {set_to(kZero, "1"), set_to("training.use_compile", "true")}},
      {.keys = {kZero, "training.optimizer"},
       .when = [](const Config& c, const Facts&) { return c.distributed.zero > 2 && c.training.optimizer.has_muon(); },
       .why = "zero 3 divides matrices, and Muon needs whole ones",
       .cures = {set_to(kZero, "2"), set_to("training.optimizer", "adamw")}},
      // With Muon each process computes the whole update in many products, whose last bits depend on all of this.
      {.keys = {"training.optimizer", kZero},
       .when =
           [](const Config& c, const Facts& facts) {
             return c.training.optimizer.has_muon() && c.distributed.zero == 0 && facts.are_alike == false;
           },
       .why = "with Muon all processes of a run need equal processors, as many threads and the same build, since each "
              "computes the whole update",
       .cures = {set_to(kZero, "1"), set_to("training.optimizer", "adamw")},
       .advice =
           "set zero to 1, with which each matrix is updated by one of them, or optimizer to adamw, or take machines "
           "that are alike"},
      {.keys = {kZero, "training.freeze"},
       .when = [](const Config& c,
                  const Facts&) { return c.distributed.zero > 2 && !c.training.tuning.freeze.empty(); },
       .why = "zero 3 divides the weights of blocks that are trained as a whole",
       .cures = {set_to(kZero, "2"), leave_out("training.freeze")}},
      {.keys = {kZero, kLoraRank},
       .when = [](const Config& c, const Facts&) { return c.distributed.zero > 2 && c.training.tuning.lora.is_on(); },
       .why = "zero 3 divides the weights of blocks that are trained as a whole",
       .cures = {set_to(kZero, "2"), leave_out(kLoraRank)}},
      // A process has the sums of others' lanes, to which it cannot add a micro-batch of its own as it goes.
      {.keys = {kZero, kLanes, "training.gradient_accumulation_steps"},
       .when =
           [](const Config& c, const Facts& facts) {
             const DistributedConfig& d = c.distributed;
             return d.zero > 1 && facts.data_processes.value_or(1) > 1 && d.lanes > 1 &&
                    c.training.gradient_accumulation_steps > d.lanes;
           },
       .why =
           [](const Config& c) {
             return fmt::format(
                 "zero {} gives equal bits only where each of an update's {} micro-batches has a lane of its own, and "
                 "lanes is {}",
                 c.distributed.zero, c.training.gradient_accumulation_steps, c.distributed.lanes);
           },
       .cures = {set_to(kZero, "1"), leave_out(kLanes)},
       .advice = "raise lanes, set zero to 1, or leave lanes out"},
  };
}

// An update's sequences and the parts among which they are divided.
struct Shares {
  int64_t sequences, parts;
  bool are_lanes;
};

Shares shares_of(const Config& config) {
  const DistributedConfig& d = config.distributed;
  const TrainingConfig& t = config.training;
  const int64_t groups = d.processes == 0 ? 0 : d.data_processes();
  return {.sequences =
              t.batch_size == 0 ? t.total_batch_size.value_or(groups) : t.batch_size * t.gradient_accumulation_steps,
          .parts = std::max(d.lanes, groups),
          .are_lanes = d.lanes > groups};
}

std::vector<RefusalRule> count_rules() {
  const auto too_few = [](bool lanes) {
    return [lanes](const Config& c, const Facts&) {
      const Shares shares = shares_of(c);
      return shares.are_lanes == lanes && shares.sequences < shares.parts;
    };
  };
  const auto why = [](const Config& c) {
    const Shares shares = shares_of(c);
    return fmt::format("an update has {}, too few for {} {}", plural(shares.sequences, "sequence"), shares.parts,
                       shares.are_lanes                       ? "lanes"
                       : c.distributed.model_processes() == 1 ? "processes"
                                                              : "groups of processes");
  };
  const char* const more = "raise batch_size or total_batch_size";
  return {
      {.keys = {"distributed.min_processes", kProcesses},
       .when =
           [](const Config& c, const Facts&) {
             return c.distributed.processes > 0 && c.distributed.min_processes.value_or(0) > c.distributed.processes;
           },
       .why =
           [](const Config& c) {
             return fmt::format("min_processes {} is more than processes {}", *c.distributed.min_processes,
                                c.distributed.processes);
           },
       .cures = {leave_out("distributed.min_processes")}},
      {.keys = {kLanes, "training.batch_size"},
       .when = too_few(true),
       .why = why,
       .cures = {leave_out(kLanes), leave_out("training.batch_size")},
       .advice = more},
      {.keys = {kProcesses, "training.batch_size"},
       .when = too_few(false),
       .why = why,
       .cures = {set_to(kProcesses, "1"), leave_out("training.batch_size")},
       .advice = more},
  };
}

}  // namespace

std::vector<RefusalRule> distributed_rules() {
  std::vector<RefusalRule> rules;
  for (auto group : {tensor_rules, pipeline_rules, lane_rules, zero_rules, count_rules})
    for (RefusalRule& rule : group()) rules.push_back(std::move(rule));
  return rules;
}

}  // namespace gpt::config
