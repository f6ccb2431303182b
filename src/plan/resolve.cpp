#include "gpt/plan/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/config/batch.h"
#include "gpt/config/pipeline_parallel.h"
#include "gpt/config/tensor_parallel.h"
#include "gpt/core/error.h"
#include "gpt/core/processors.h"
#include "gpt/plan/batch_choice.h"
#include "gpt/plan/data_checks.h"
#include "gpt/prepare/load_corpus.h"

namespace gpt::plan {
namespace {

void join(run::Setup& setup, const distributed::Group& group) {
  setup.mesh = group.mesh();
  setup.config.distributed.processes = setup.mesh.all->size();
  setup.local_processes = group.ranks().local_size;
}

// With zero 2 a process has the sums of others' lanes, to which it cannot add a micro-batch of its own as it goes.
void require_lane_of_each(const Config& config) {
  const DistributedConfig& distributed = config.distributed;
  const int64_t micro_batches = config.training.gradient_accumulation_steps;
  if (distributed.zero < 2 || distributed.data_processes() == 1 || distributed.lanes == 1 ||
      micro_batches <= distributed.lanes)
    return;
  throw Error(
      ExitCode::config,
      fmt::format("distributed.zero: {} gives equal bits only where each of an update's {} micro-batches has a lane "
                  "of its own, and distributed.lanes is {}; raise lanes, set zero to 1, or leave lanes out",
                  distributed.zero, micro_batches, distributed.lanes));
}

// Its cache of weights in 16 bits would hold those of all blocks, or be there once for each micro-batch on its way through the stages.
void require_no_autocast(const Config& config, const Precision& precision) {
  const DistributedConfig& distributed = config.distributed;
  const bool is_pipelined = distributed.processes > 1 && distributed.pipeline_parallel > 1;
  if ((!distributed.divides_weights() && !is_pipelined) || precision.autocast_type() == at::kFloat) return;
  throw Error(ExitCode::config,
              fmt::format("distributed.{} does not go with training.amp_mode: autocast, which keeps a copy of all "
                          "weights in {}; set dtype: bfloat16 with amp_mode: end_to_end, use_amp: false, or {}",
                          is_pipelined ? "pipeline_parallel" : "zero: 3", name_of(precision.autocast_type()),
                          is_pipelined ? "pipeline_parallel to 1" : "zero to 2"));
}

void keep_choices(run::Setup& setup) {
  const int64_t cores = std::max<int64_t>(1, usable_processors() / setup.local_processes);
  setup.config.data.num_workers = workers_for(setup.config.data, setup.device.device.is_cuda(), cores);
  divide_update(setup.config, setup.mesh.all->size());
  if (const std::string why = config::tensor_parallel_obstacle(setup.config);
      setup.mesh.tensor->size() > 1 && !why.empty())
    throw Error(ExitCode::config, "distributed.tensor_parallel: " + why);
  if (const std::string why = config::pipeline_parallel_obstacle(setup.config);
      setup.mesh.pipeline.stages->size() > 1 && !why.empty())
    throw Error(ExitCode::config, "distributed.pipeline_parallel: " + why);
  require_no_autocast(setup.config, setup.precision);
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
  require_lane_of_each(config);
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

run::Setup resolve(const Config& asked) {
  Corpus corpus = load_corpus(asked.data, asked.model.block_size, "", asked.model.vocab_size);
  run::Setup setup =
      run::set_up(asked, std::move(corpus), select_device(asked.device).device, asked.training.precision);
  setup.config.distributed.tensor_parallel = setup.config.distributed.pipeline_parallel = 1;
  choose_batch_size(setup, /*is_tried=*/false);
  choose_swapped_layers(setup);
  keep_choices(setup);
  return setup;
}

}  // namespace gpt::plan
