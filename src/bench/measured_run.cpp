#include "measured_run.h"

#include <chrono>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/process.h"

namespace gpt::bench {
namespace {

bool is_stopped() { return process::stop_signal() != 0; }

}  // namespace

MeasuredRun::MeasuredRun(run::Setup setup) : setup_(std::move(setup)), run_(setup_) {
  // The same sequences for every run that is compared.
  run_.state().eval_sequences = run::automatic_eval_sequences(setup_.config.sequence_length());
  run_.check_operators(/*is_told=*/false);  // as gpt-train does
  is_to_be_recorded_ = run_.step().is_recorded();
}

int64_t MeasuredRun::launch() {
  const auto tokens = run_.update(is_stopped);
  if (!tokens || is_stopped()) throw Error(ExitCode::interrupted, "interrupted");
  return *tokens;
}

void MeasuredRun::wait() const { device::synchronize(device().device); }  // sync: what was launched is timed

MeasuredRun::Updates MeasuredRun::update(int64_t count) {
  const auto begin = std::chrono::steady_clock::now();
  int64_t tokens = 0;
  for (int64_t i = 0; i < count; ++i) tokens += launch();
  wait();
  return {tokens, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

at::Tensor MeasuredRun::loss() const { return run_.step().loss().clone(); }

double MeasuredRun::validation_loss() {
  if (run_.evaluator().empty())
    throw Error(ExitCode::config, "the data has no validation split: set data.validation_fraction");
  const run::Evaluation evaluation = run_.evaluator().run(run_.model(), [](double) { return is_stopped(); });
  if (is_stopped()) throw Error(ExitCode::interrupted, "interrupted");
  return evaluation.loss;
}

void MeasuredRun::require_recorded() const {
  if (is_to_be_recorded_ && !run_.step().is_recorded())
    throw Error(ExitCode::failed_check, "the step could not be recorded as CUDA graphs");
}

}  // namespace gpt::bench
