#include "gpt/plan/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/config/batch.h"
#include "gpt/config/rules.h"
#include "gpt/core/error.h"
#include "gpt/core/processors.h"
#include "gpt/plan/batch_choice.h"
#include "gpt/plan/data_checks.h"
#include "gpt/run/initial_weights.h"

namespace gpt::plan {
namespace {

void join(run::Setup& setup, const distributed::Group& group) {
  setup.mesh = group.mesh();
  setup.config.distributed.processes = setup.mesh.all->size();
  setup.local_processes = group.ranks().local_size;
}

void keep_choices(run::Setup& setup) {
  const int64_t cores = std::max<int64_t>(1, usable_processors() / setup.local_processes);
  setup.config.data.num_workers = workers_for(setup.config.data, setup.device.device.is_cuda(), cores);
  divide_update(setup.config, setup.mesh.all->size());
  config::require_agreement(setup.config, run::facts_of(setup));
  keep_resolved(setup.config.training, setup.precision);  // whose gradients' type depends on the batch
}

}  // namespace

int64_t count_processes(const Config& config) {
  if (config.distributed.processes > 0) return config.distributed.processes;
  const bool may_use_gpus = config.device == "auto" || config.device == "cuda";
  return may_use_gpus ? std::max<int64_t>(1, gpu_count()) : 1;
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
  choose_batch_size(setup, /*is_tried=*/true);
  choose_swapped_layers(setup);
  keep_choices(setup);
  return setup;
}

run::Setup resolve_like_first(Config resolved, Corpus corpus, at::Device device, const PrecisionConfig& asked,
                              const distributed::Group& group) {
  run::Setup setup = run::set_up(std::move(resolved), std::move(corpus), device, asked);
  join(setup, group);
  if (setup.dtype_change.empty()) return setup;
  throw Error(ExitCode::config, fmt::format("the processes must compute in one dtype: {}", setup.dtype_change));
}

run::Setup resolve(Config asked) {
  Corpus corpus = run::load_corpus_to_measure(asked);
  const at::Device device = select_device(asked.device).device;
  const PrecisionConfig precision = asked.training.precision;
  run::Setup setup = run::set_up(std::move(asked), std::move(corpus), device, precision);
  setup.config.distributed.tensor_parallel = setup.config.distributed.pipeline_parallel = 1;
  choose_batch_size(setup, /*is_tried=*/false);
  choose_swapped_layers(setup);
  keep_choices(setup);
  return setup;
}

}  // namespace gpt::plan
