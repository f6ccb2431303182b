#include "measured_run.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/process.h"
#include "gpt/device/memory.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/run/evaluator.h"

namespace gpt::bench {
namespace {

bool is_stopped() { return process::stop_signal() != 0; }

Corpus corpus_of(Config& config) {
  Corpus corpus = load_corpus(config.data, config.model.block_size, "", config.model.vocab_size);
  config.model.vocab_size = vocabulary_for(corpus, config.model.vocab_size);
  return corpus;
}

DeviceInfo device_of(const Config& config) {
  const at::Device device = select_device(config.device).device;
  configure_memory(config.training, device);
  return describe_device(device);
}

Precision precision_of(const TrainingConfig& training, const DeviceInfo& device) {
  const Precision precision = resolve_precision(training.precision, device);
  apply_precision(precision, training.execution.deterministic);
  return precision;
}

}  // namespace

MeasuredRun::MeasuredRun(Config config)
    : config_(std::move(config)),
      corpus_(corpus_of(config_)),
      device_(device_of(config_)),
      precision_(precision_of(config_.training, device_)),
      state_(config_, corpus_, device_.device, precision_),
      step_(state_.model, state_.optimizer, state_.scaler, precision_, config_.training,
            run::recorder_for(config_.training, config_.model, device_.device)),
      plan_(run::plan_run(config_.training, state_.loader.batches_per_epoch())) {
  is_to_be_recorded_ = step_.is_recorded();
}

int64_t MeasuredRun::launch() {
  const double learning_rate = learning_rate_at(config_.training.schedule, state_.step, plan_.total_steps);
  const auto tokens =
      run::run_update(step_, state_.loader, plan_.micro_batches(state_.step), learning_rate, is_stopped);
  if (!tokens || is_stopped()) throw Error(ExitCode::interrupted, "interrupted");
  ++state_.step;
  return *tokens;
}

void MeasuredRun::wait() const { synchronize(device_.device); }  // sync: what was launched is timed

MeasuredRun::Updates MeasuredRun::update(int64_t count) {
  const auto begin = std::chrono::steady_clock::now();
  int64_t tokens = 0;
  for (int64_t i = 0; i < count; ++i) tokens += launch();
  wait();
  return {tokens, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

at::Tensor MeasuredRun::loss() const { return step_.loss().clone(); }

double MeasuredRun::validation_loss() {
  // The same sequences for every run that is compared.
  run::Evaluator evaluator(corpus_, config_.training.batch_size, config_.model.block_size,
                           {.eval_batches = config_.training.cadence.eval_batches,
                            .sequences = run::automatic_eval_sequences(config_.model.block_size)},
                           device_.device, precision_);
  if (evaluator.empty())
    throw Error(ExitCode::config, "the data has no validation split: set data.validation_fraction");
  const run::Evaluation evaluation = evaluator.run(state_.model, [](double) { return is_stopped(); });
  if (is_stopped()) throw Error(ExitCode::interrupted, "interrupted");
  return evaluation.loss;
}

int64_t MeasuredRun::warm_up(int64_t wanted) const {
  return std::max<int64_t>(wanted, device_.device.is_cuda() ? run::Recorder::kRunsBefore + 1 : 0);
}

void MeasuredRun::require_recorded() const {
  if (is_to_be_recorded_ && !step_.is_recorded())
    throw Error(ExitCode::failed_check, "the step could not be recorded as CUDA graphs");
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace gpt::bench
