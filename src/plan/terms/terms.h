// What techniques, and what every run has, take of memory, compute, move and send: a file of this folder for each. estimates, limits,
// card_estimate and sent_bytes add them up. Each adds to what it changes; what is saved may be a negative number.
#pragma once

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "activation_bytes.h"
#include "gpt/config/config.h"
#include "gpt/device/precision.h"
#include "gpt/layout/cut.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/plan/activation_form.h"
#include "gpt/plan/operator_work.h"
#include "gpt/report/memory_use.h"

namespace gpt::plan::terms {

// A stage's part of a run, in the process that has most of it.
struct RunPart {
  RunPart(const ModelConfig& whole, const TrainingConfig& training, const ActivationForm& form,
          const layout::ModelPart& part);
  RunPart(const RunPart&) = delete;
  RunPart& operator=(const RunPart&) = delete;

  const ModelConfig& whole;
  const TrainingConfig& training;
  const ActivationForm& form;
  const layout::ModelPart& part;
  const at::ScalarType gradient;  // its type
  const bool is_narrow;           // computed in 16 bits
  std::vector<layout::ParameterRow> rows;
  layout::FlatLayout layout;
  // How many micro-batches are between their passes at once in this stage, and how many blocks keep something of each: those that the
  // backward pass reaches.
  double in_flight = 1, layers = 0;
  bool passes_gradients_on = false;  // to the stage before
  ModelConfig model;                 // whose passes are meant, in a process
  double tokens = 0;                 // of a micro-batch
  ActivationBytes bytes;             // of each of them

  GradientCheckpointing level() const { return training.execution.gradient_checkpointing; }
  // In 16 bits a product may be one of float32 at first: bytes of each of its values.
  double unrounded() const { return is_narrow && form.rounds_products ? ops::kFloatBytes : 0; }
  // And a weight's gradient may be a tensor of its own until it is added to one of float32: bytes for one of n_embd by `width`.
  double of_weight(int64_t width) const {
    const bool is_separate = is_narrow && gradient == at::kFloat && !form.adds_products;
    return static_cast<double>(width * model.n_embd) * ((is_separate ? 2 : 0) + unrounded());
  }
};

// Bytes of the process at the peak of a step.
struct MemoryTerms {
  report::MemoryUse use;  // there whenever the peak is
  // While passes run, besides: at the head, where the logits are a part of it, or in the backward pass of a block, with the one of its products
  // that takes most.
  double head = 0, logits = 0, block = 0, product = 0;
  double passes = 0;  // at either place
  // Where no activations are kept, what takes most.
  double apart = 0;

  void at_product(double bytes) { product = std::max(product, bytes); }
  void at_other_time(double bytes) { apart = std::max(apart, bytes); }
};

// A step, of which micro-batches have the same operators.
struct StepOperators {
  const TrainingConfig& training;
  ModelConfig model;  // whose passes are meant
  std::vector<layout::ParameterRow> rows;
  OperatorWork::Types types;
  double micro_steps, tokens;  // of a micro-batch
  OperatorWork of{model, types, tokens};
};

// What a step does in each part (ops/part.h).
struct StepWork {
  std::map<std::string_view, Work> of;
  void add(std::string_view part, const Work& work) { of[part] = of[part] + work; }
};

// A step on a card, before it is known how fast that is.
struct CardTerms {
  double flops_per_token = 0, update_flops = 0;  // the latter in bfloat16
  double repeated = 1;                           // what passes compute, as a multiple of what they do where all is kept
  double kernels = 0, update_kernels = 0;        // launches: of a micro-step where all is kept, and of an update
  double moved_by_update = 0, swapped = 0;  // bytes over the bus: of an update, and of a micro-step beside computing
};
struct CardStep {
  const ModelConfig& model;
  const TrainingConfig& training;
  const ActivationForm& form;
  std::vector<layout::ParameterRow> rows;
  double host;  // bytes of the memory estimate
};

// What the processes of a stage send.
struct Sender {
  const UpdateConfig& config;
  bool end_to_end;
  int64_t processes;  // that have the same part of the model
  int64_t stage = 0;

  int64_t rounds() const {  // in which each of them has a micro-batch
    return (config.training.gradient_accumulation_steps + processes - 1) / processes;
  }
};

struct Term {
  void (*memory)(const RunPart& run, MemoryTerms& sum) = nullptr;
  void (*work)(const StepOperators& step, StepWork& sum) = nullptr;
  void (*card)(const CardStep& step, CardTerms& sum) = nullptr;
  double (*sent)(const Sender& sender) = nullptr;            // bytes that a process sends in an update
  double (*sending_memory)(const Sender& sender) = nullptr;  // that this takes, whatever the stage
};

const std::vector<Term>& all();

}  // namespace gpt::plan::terms
