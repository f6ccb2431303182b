#include "gpt/plan/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "gpt/config/batch.h"
#include "gpt/config/rules.h"
#include "gpt/core/error.h"
#include "gpt/plan/data_checks.h"
#include "gpt/run/initial_weights.h"

namespace gpt::plan {
namespace {

void join(run::Setup& setup, const distributed::Group& group) {
  setup.mesh = group.mesh();
  setup.config.distributed.processes = setup.mesh.all->size();
  setup.local_processes = group.ranks().local_size;
}

// None where the plan decides alone: on a CPU, and where a model or its weights are divided, which one process would try as a whole.
std::function<bool()> trial_of(const run::Setup& setup) {
  const bool is_divided =
      setup.mesh.divides_model() || (setup.config.distributed.zero > 2 && setup.mesh.data->size() > 1);
  if (!setup.device.device.is_cuda() || is_divided) return {};
  return [&setup] { return fits_in_practice(setup); };
}

void complete(run::Setup& setup, const std::function<bool()>& fits) {
  if (const auto batch = choose(setup.config, means_of(setup), fits)) setup.batch_reason = describe(*batch);
  divide_update(setup.config, setup.mesh.all->size());
  config::require_agreement(setup.config, run::facts_of(setup));
  device::keep_resolved(setup.config.training, setup.precision);  // whose gradients' type depends on the batch
}

}  // namespace

int64_t count_processes(const Config& config) {
  if (config.distributed.processes > 0) return config.distributed.processes;
  const bool may_use_gpus = config.device == "auto" || config.device == "cuda";
  return may_use_gpus ? std::max<int64_t>(1, device::gpu_count()) : 1;
}

std::optional<BatchChoice> choose(Config& config, const Means& means, const std::function<bool()>& fits) {
  std::optional<BatchChoice> batch = choose_batch_size(config, means, fits);
  choose_swapped_layers(config, means);
  config.data.num_workers = workers_for(config.data, means.device.device.is_cuda(), means.cores);
  return batch;
}

void divide_update(Config& config, int64_t processes) {
  config.distributed.processes = processes;
  config::deal_out(config.training, std::max(config.distributed.data_processes(), config.distributed.lanes));
  if (config.distributed.lanes > 1) config.training.precision.gradient_dtype = GradientDtype::float32;
  config::require_agreement(config, {.processes = processes, .data_processes = config.distributed.data_processes()});
}

run::Setup resolve(run::RunData data, at::Device device, const PrecisionConfig& asked,
                   const distributed::Group& group) {
  run::Setup setup = run::set_up(std::move(data.config), std::move(data.corpus), device, asked);
  join(setup, group);
  complete(setup, trial_of(setup));
  return setup;
}

run::Setup resolve_like_first(run::RunData resolved, at::Device device, const PrecisionConfig& asked,
                              const distributed::Group& group) {
  run::Setup setup = run::set_up(std::move(resolved.config), std::move(resolved.corpus), device, asked);
  join(setup, group);
  if (setup.dtype_change.empty()) return setup;
  throw Error(ExitCode::config, fmt::format("the processes must compute in one dtype: {}", setup.dtype_change));
}

run::Setup resolve(Config asked) {
  data::Corpus corpus = run::load_corpus_to_measure(asked);
  const at::Device device = device::select_device(asked.device).device;
  const PrecisionConfig precision = asked.training.precision;
  run::Setup setup = run::set_up(std::move(asked), std::move(corpus), device, precision);
  setup.config.distributed.tensor_parallel = setup.config.distributed.pipeline_parallel = 1;
  complete(setup, {});
  return setup;
}

}  // namespace gpt::plan
