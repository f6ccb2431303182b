#include "gpt/plan/batch_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "gpt/batches/data_loader.h"
#include "gpt/config/batch.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/memory.h"
#include "gpt/plan/estimates.h"
#include "gpt/run/run.h"

namespace gpt::plan {
namespace {

BatchChoice planned(const ModelConfig& model, const TrainingConfig& training, const ActivationForm& form,
                    const MemoryBudget& memory) {
  return {.batch_size = training.batch_size,
          .micro_steps = training.gradient_accumulation_steps,
          .needed = memory.taken() + estimate_memory(model, training, form).total(),
          .available = memory.available};
}

MemoryBudget budget_with_data(const run::Setup& setup) {
  MemoryBudget memory = memory_budget(setup);
  memory.data = resident_bytes(setup.config.data, setup.corpus, setup.device.device, memory.available);
  return memory;
}

}  // namespace

BatchChoice plan_batch_size(const ModelConfig& model, TrainingConfig training, const ActivationForm& form,
                            const MemoryBudget& memory) {
  // Gradients that are added up may take more than those that are not.
  training.gradient_accumulation_steps = std::max<int64_t>(2, training.gradient_accumulation_steps);
  const int64_t largest = largest_batch_size(model, training, form, memory.comfortable()).value_or(1);
  config::set_batch_size(training, config::largest_divisor(*training.total_batch_size, largest));
  return planned(model, training, form, memory);
}

int64_t largest_that_fits(int64_t total, int64_t batch_size, const std::function<bool(int64_t)>& fits) {
  while (batch_size > 1 && !fits(batch_size)) batch_size = config::largest_divisor(total, batch_size - 1);
  return batch_size;
}

bool fits_in_practice(const run::Setup& setup) {
  constexpr int64_t kMost = 2;  // the second finds gradients to add to
  bool fits = true;
  try {
    const run::Setup trial = run::for_trial(setup);
    run::Run run(trial, {}, [](GPT&) { return run::Recorder(); });  // graphs are recorded later
    run.check_operators(/*is_told=*/false);
    run.try_update(std::min(kMost, setup.config.training.gradient_accumulation_steps));
  } catch (const std::exception& error) {
    if (!process::is_out_of_memory(error)) throw;
    fits = false;
  }
  release_unused_memory(setup.device.device);  // what is kept of the step would count as used
  return fits;
}

std::string describe(const BatchChoice& choice) {
  return fmt::format("training.batch_size: auto chose {}, {} an update (the plan: {} of {})",
                     plural(choice.batch_size, "sequence"), plural(choice.micro_steps, "micro-step"),
                     format_bytes(choice.needed), format_bytes(choice.available));
}

void choose_batch_size(run::Setup& setup, bool is_tried) {
  const Config& config = setup.config;
  const at::Device device = setup.device.device;
  TrainingConfig& training = setup.config.training;
  if (training.batch_size > 0) return;
  const ActivationForm form =
      activation_form(config.model, training, config.distributed, setup.device, setup.precision);
  const MemoryBudget memory = budget_with_data(setup);
  config::set_batch_size(training, plan_batch_size(config.model, training, form, memory).batch_size);
  // A trial is one process's alone, in which a model or weights that are divided would have to be whole.
  const bool is_divided = setup.mesh.divides_model() || (config.distributed.zero > 2 && setup.mesh.data->size() > 1);
  if (is_tried && device.is_cuda() && !is_divided) {
    const auto fits = [&](int64_t batch_size) {
      config::set_batch_size(training, batch_size);
      const bool does = fits_in_practice(setup);
      if (!does) log::info(fmt::format("A step with {} at a time ran out of memory", plural(batch_size, "sequence")));
      return does;
    };
    config::set_batch_size(training, largest_that_fits(*training.total_batch_size, training.batch_size, fits));
  }
  setup.batch_reason = describe(planned(config.model, training, form, memory));
}

void choose_swapped_layers(const ModelConfig& model, TrainingConfig& training, const ActivationForm& form,
                           const MemoryBudget& memory) {
  std::optional<int64_t>& layers = training.execution.swap_activations;
  if (layers) return;
  for (layers = 0; *layers < model.n_layer; ++*layers)
    if (estimate_memory(model, training, form).total() <= memory.comfortable()) return;
}

void choose_swapped_layers(run::Setup& setup) {
  if (setup.config.training.execution.swap_activations) return;
  const ActivationForm form = activation_form(setup.config.model, setup.config.training, setup.config.distributed,
                                              setup.device, setup.precision);
  choose_swapped_layers(setup.config.model, setup.config.training, form, budget_with_data(setup));
}

double resident_bytes(const DataConfig& data, const Corpus& corpus, at::Device device, double available) {
  double bytes = 0;
  if (!device.is_cuda() || !stays_resident(data.resident, corpus.sources, available)) return bytes;
  for (const Tokens& source : corpus.sources) bytes += static_cast<double>(source.bytes());
  return bytes;
}

}  // namespace gpt::plan
