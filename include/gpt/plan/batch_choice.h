// training.batch_size: auto. Of the divisors of training.total_batch_size, the largest that fits into memory becomes the
// micro-batch, so that an update has the same sequences on every device. First by the plan of estimates.h; on a GPU a step then
// shows that it really fits, but for the graphs that compile_mode may record. On a CPU the plan decides alone: a process that
// runs out of memory there may be killed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gpt/config/config.h"
#include "gpt/data/corpus.h"
#include "gpt/plan/model_checks.h"
#include "gpt/run/setup.h"

namespace gpt::plan {

struct BatchChoice {
  int64_t batch_size = 0;   // sequences per micro-step
  int64_t micro_steps = 0;  // per update
  double needed = 0;        // bytes, as planned
  double available = 0;     // bytes that the run may use
};

// Chooses by the plan alone: keeps a tenth of the memory free. One sequence at a time where not even one fits. `model.vocab_size` and
// `training.total_batch_size` must be set; `training.batch_size` does not matter.
BatchChoice plan_batch_size(const ModelConfig& model, TrainingConfig training, const ActivationForm& form,
                            const MemoryBudget& memory);

// The largest divisor of `total`, from `batch_size` downwards, of which `fits` is true; 1 where none is.
int64_t largest_that_fits(int64_t total, int64_t batch_size, const std::function<bool(int64_t)>& fits);

// Whether forward pass, backward pass and update of this configuration's micro-batch find the memory that they need. Nothing of
// them stays, but for the random state, which every run seeds. Throws gpt::Error(interrupted) after a signal.
bool fits_in_practice(const run::Setup& setup);

// "training.batch_size: auto chose 32 sequences, 4 micro-steps an update (the plan: 5.1 GB of 22 GB)".
std::string describe(const BatchChoice& choice);

// What a run computes with, by which its choices are made: here, or where it is asked about.
struct Means {
  device::DeviceInfo device;
  device::Precision precision;
  std::string attention;                 // the kernel's name
  std::function<MemoryBudget()> memory;  // of a process, with the tokens on the device; asked for again after trials
  int64_t processes = 1;                 // of the run
  int64_t cores = 1;                     // of each of them
};
// The means of a process of the run, without anything of it allocated yet. The setup must outlive them.
Means means_of(const run::Setup& setup);

// Sets batch_size and gradient_accumulation_steps if batch_size is auto; otherwise returns nothing. `fits`: tries a step of `config` as it
// is; empty: the plan alone decides.
std::optional<BatchChoice> choose_batch_size(UpdateConfig& config, const Means& means,
                                             const std::function<bool()>& fits = {});

// training.swap_activations: auto. Sets the fewest blocks with which the run fits into memory, with a tenth of it free; all where it does not
// fit even so. `training.batch_size` must be set.
void choose_swapped_layers(const ModelConfig& model, TrainingConfig& training, const ActivationForm& form,
                           const MemoryBudget& memory);
void choose_swapped_layers(UpdateConfig& config, const Means& means);

// Bytes of the tokens that stay on a GPU beside the run; 0 on a CPU, where they are the page cache's.
double resident_bytes(const DataConfig& data, const data::Corpus& corpus, at::Device device, double available);

}  // namespace gpt::plan
