#include "gpt/plan/batch_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "gpt/batches/data_loader.h"
#include "gpt/config/batch.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/core/processors.h"
#include "gpt/device/memory.h"
#include "gpt/model/compile.h"
#include "gpt/plan/estimates.h"
#include "gpt/plan/sent_bytes.h"
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

ActivationForm form_of(const UpdateConfig& config, const Means& means) {
  return activation_form(config.model, config.training, config.distributed, means.device, means.precision,
                         means.attention);
}

MemoryBudget budget_of(const UpdateConfig& config, const Means& means) {
  MemoryBudget memory = means.memory();
  memory.exchange = exchange_bytes(config, means.precision.end_to_end, means.processes);
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
    run::Run run(trial, {}, [](model::GPT&) { return run::Recorder(); });  // graphs are recorded later
    run.check_operators(/*is_told=*/false);
    run.try_update(std::min(kMost, setup.config.training.gradient_accumulation_steps));
  } catch (const std::exception& error) {
    if (!process::is_out_of_memory(error)) throw;
    fits = false;
  }
  device::release_unused_memory(setup.device.device);  // what is kept of the step would count as used
  return fits;
}

std::string describe(const BatchChoice& choice) {
  return fmt::format("training.batch_size: auto chose {}, {} an update (the plan: {} of {})",
                     plural(choice.batch_size, "sequence"), plural(choice.micro_steps, "micro-step"),
                     format_bytes(choice.needed), format_bytes(choice.available));
}

Means means_of(const run::Setup& setup) {
  const Config& config = setup.config;
  const at::Device device = setup.device.device;
  const auto memory = [&setup, device] {
    MemoryBudget budget = memory_budget(setup);
    budget.data = resident_bytes(setup.config.data, setup.corpus, device, budget.available);
    return budget;
  };
  return {.device = setup.device,
          .precision = setup.precision,
          .attention =
              model::attention_path(config.model, config.training.execution, device, setup.precision.compute_type(),
                                    /*training=*/true),
          .memory = memory,
          .processes = setup.mesh.all->size(),
          .cores = std::max<int64_t>(1, usable_processors() / setup.local_processes)};
}

std::optional<BatchChoice> choose_batch_size(UpdateConfig& config, const Means& means,
                                             const std::function<bool()>& fits) {
  TrainingConfig& training = config.training;
  if (training.batch_size > 0) return std::nullopt;
  const ActivationForm form = form_of(config, means);
  const MemoryBudget memory = budget_of(config, means);
  config::set_batch_size(training, plan_batch_size(config.model, training, form, memory).batch_size);
  if (fits) {
    const auto is_enough = [&](int64_t batch_size) {
      config::set_batch_size(training, batch_size);
      const bool is = fits();
      if (!is) log::info(fmt::format("A step with {} at a time ran out of memory", plural(batch_size, "sequence")));
      return is;
    };
    config::set_batch_size(training, largest_that_fits(*training.total_batch_size, training.batch_size, is_enough));
  }
  return planned(config.model, training, form, memory);
}

void choose_swapped_layers(const ModelConfig& model, TrainingConfig& training, const ActivationForm& form,
                           const MemoryBudget& memory) {
  std::optional<int64_t>& layers = training.execution.swap_activations;
  if (layers) return;
  for (layers = 0; *layers < model.n_layer; ++*layers)
    if (estimate_memory(model, training, form).total() <= memory.comfortable()) return;
}

void choose_swapped_layers(UpdateConfig& config, const Means& means) {
  if (config.training.execution.swap_activations) return;
  choose_swapped_layers(config.model, config.training, form_of(config, means), budget_of(config, means));
}

double resident_bytes(const DataConfig& data, const data::Corpus& corpus, at::Device device, double available) {
  double bytes = 0;
  if (!device.is_cuda() || !batches::stays_resident(data.resident, corpus.sources, available)) return bytes;
  for (const data::Tokens& source : corpus.sources) bytes += static_cast<double>(source.bytes());
  return bytes;
}

}  // namespace gpt::plan
