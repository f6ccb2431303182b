#include "gpt/plan/before_training.h"

#include <fmt/format.h>

#include "gpt/batches/data_loader.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/processors.h"
#include "gpt/model/compile.h"
#include "gpt/ops/probe.h"
#include "gpt/plan/data_checks.h"
#include "gpt/plan/device_checks.h"
#include "gpt/plan/model_checks.h"
#include "gpt/plan/out_of_memory.h"
#include "gpt/plan/quantized_check.h"
#include "gpt/run/state.h"

namespace gpt::plan {
namespace {

void require_sample_prompt(const CadenceConfig& cadence, const data::Corpus& corpus) {
  const Check check = check_sample_prompt(cadence, corpus);
  if (check.status == Check::Status::fail)
    throw Error(ExitCode::config, fmt::format("{}; {}", check.detail, check.fix));
}

void say_if_doubtful(const Check& check) {
  if (check.status != Check::Status::pass) log::warn(fmt::format("{}: {}; {}", check.name, check.detail, check.fix));
}

// Searching a larger corpus would take too long. Separate files were compared when they were loaded, whatever their size.
void compare_splits(const data::Corpus& corpus) {
  constexpr int64_t kMostTokens = 100'000'000;  // a tenth of a second on one core
  int64_t tokens = 0;
  for (const data::Tokens& source : corpus.sources) tokens += source.size();
  if (corpus.validation.size() > 0 && tokens <= kMostTokens) say_if_doubtful(check_overlap(corpus));
}

// The estimate is up to a tenth too high: memory is certain not to suffice only where the reduced estimate is too much as well.
void require_memory(const Config& config, const run::Setup& setup) {
  constexpr double kLeast = 0.9;
  const ModelConfig model = config.model_in_stages();
  const TrainingConfig& training = config.training;
  const device::DeviceInfo& device = setup.device;
  const device::Precision& precision = setup.precision;
  const std::string attention =
      model::attention_path(model, training.execution, device.device, precision.compute_type(),
                            /*training=*/true);
  const ActivationForm form = activation_form(model, training, config.distributed, device, precision, attention);
  const MemoryBudget memory = memory_budget(setup);
  Check check = check_memory(model, training, form, memory);
  name_settings_that_fit(check, {config, device, attention}, memory);
  const double needed = memory.program + memory.exchange + estimate_memory(model, training, form).total();
  if (kLeast * needed <= memory.available || !training.execution.memory_check) return say_if_doubtful(check);
  throw Error(ExitCode::memory,
              fmt::format("this run does not fit into memory: it needs {}; {}, or start it anyway with "
                          "--training.memory_check false",
                          check.detail, check.fix));
}

// A run that goes on keeps what it began with.
void require_gain_of_quantization(const run::Setup& setup, bool is_resumed) {
  if (!setup.config.training.quantized.is_on()) return;
  const Check check = check_quantized_forward(setup.config, setup.device, setup.precision, /*is_here=*/true);
  if (check.status == Check::Status::pass) return log::success("Quantized forward: " + check.detail);
  if (check.status == Check::Status::fail && !is_resumed)
    throw Error(ExitCode::config, fmt::format("training.quantized_forward: {}; {}", check.detail, check.fix));
  log::warn(fmt::format("training.quantized_forward: {}", check.detail));
}

void say_doubts_about_length(const Config& config, const DatasetFacts& facts, const run::Plan& plan) {
  if (config.data.stages.empty()) say_if_doubtful(check_length(config, facts, plan));
  say_if_doubtful(check_learning_rate(config.training, plan));
}

}  // namespace

void check_length_before_training(const run::Run& run) {
  say_doubts_about_length(run.setup().config, describe_data(run.setup().corpus, run.state().loader), run.plan());
}

void check_before_training(const run::Setup& setup, bool is_resumed) {
  const Config& config = setup.config;
  const data::Corpus& corpus = setup.corpus;
  const device::DeviceInfo& device = setup.device;
  require_sample_prompt(config.training.cadence, corpus);
  // On the CPU, so that no token is copied to a GPU before the run itself does it.
  const batches::DataLoader loader(corpus.sources, config.data, run::schedule_options(config, corpus), at::kCPU);
  const DatasetFacts facts = describe_data(corpus, loader);
  Config real = config;
  real.training = with_real_batch(config.training, facts);
  require_memory(real, setup);
  require_gain_of_quantization(setup, is_resumed);
  if (is_resumed) return;
  if (device.device.is_cpu()) say_if_doubtful(check_threads(config.threads, usable_cores(), setup.local_processes));
  compare_splits(corpus);
  say_if_doubtful(check_batch(config.training, facts));
  if (config.training.schedule.has_time()) return;  // how long it is then is not known yet
  const run::Plan plan = run::plan_run(config.training, loader.batches_per_epoch());
  say_doubts_about_length(config, facts, plan);
  say_if_doubtful(check_compute(config.model, config.training, plan,
                                ops::measure_product_speed(device.device, setup.precision.compute_type())));
}

}  // namespace gpt::plan
