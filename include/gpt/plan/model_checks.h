// The model of a configuration: its size, whether it suits the device, and what it will cost. Nothing is allocated.
// `model.vocab_size` must be set.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/plan/check.h"
#include "gpt/plan/estimates.h"
#include "gpt/run/plan.h"
#include "gpt/run/setup.h"

namespace gpt::plan {

// What to do about a run that takes days.
constexpr const char* kShorterRun =
    "lower training.max_steps (or training.epochs) or the size of the model, or train on a faster device";

Check check_parameters(const ModelConfig& model);
Check check_vocabulary(const ModelConfig& model, bool cuda);
// Whether other programs have a model of this form, so that it can be exported to them.
Check check_export(const ModelConfig& model);

// "a window of 256 positions in 9 of 12 layers", or of the blocks that queries choose; empty where every token sees all before it. And why
// a key of either changes nothing; empty where none is set in vain.
std::string describe_sparse_attention(const ModelConfig& model);
std::string idle_attention(const ModelConfig& model);

// `path`: the kernel that LibTorch chooses, as attention_path() names it.
Check check_attention(const ModelConfig& model, bool cuda, const std::string& path);

// Bytes of the device's memory that this process may use, and those that it needs apart from the tensors of the run.
struct MemoryBudget {
  double available = 0, program = 0;
  double data = 0;                                        // tokens that stay on the device
  double exchange = 0;                                    // further lanes, and what is sent between processes
  double host = std::numeric_limits<double>::infinity();  // free beside a GPU's; of another machine, unknown

  double taken() const { return program + data + exchange; }  // whatever the batch is
  // For the run's own tensors, where a tenth stays free for other programs.
  double comfortable() const { return 0.9 * available - taken(); }
};
// `fraction`: of all the memory there, as training.memory_fraction. `processes`: that share the memory of the host.
MemoryBudget memory_budget(at::Device device, double fraction, int64_t processes = 1);
MemoryBudget memory_budget(const run::Setup& setup);  // without the data
// What each of so many processes of a machine may use, none of which has begun, where one alone may use `all`. On GPUs each has its own.
MemoryBudget of_each(MemoryBudget all, at::Device device, int64_t processes);
Check check_memory(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                   const MemoryBudget& memory);

// Floating-point operations of an update: those of the model for its tokens, and of Newton-Schulz for Muon, whatever the tokens are.
struct StepFlops {
  double model = 0, muon = 0;
  double all() const { return model + muon; }
};
StepFlops flops_per_step(const ModelConfig& model, const TrainingConfig& training);
// Whether the model of training.distill_from can teach this run, for one that has a teacher. `model.vocab_size` must be set.
Check check_teacher(const UpdateConfig& config, const DataConfig& data, const data::Corpus& corpus);

// What Muon adds to a step, for people; empty without Muon. Each of several processes computes a part of the model's, and one of so many
// parts of Muon's: as distributed.zero divides it, or the stages of a model.
std::string describe_muon(const ModelConfig& model, const TrainingConfig& training, int64_t processes = 1,
                          int64_t parts_of_muon = 1);

// The FLOPs of the run and its tokens per parameter; where the time of a step has not been measured, a prediction from the speed of
// matrix products on this device (FLOP/s). More than a day is a warning.
Check check_compute(const ModelConfig& model, const TrainingConfig& training, const run::Plan& plan,
                    std::optional<double> product_speed);

}  // namespace gpt::plan
