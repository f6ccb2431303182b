#include "gpt/plan/trial.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/process.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/run/state.h"
#include "gpt/run/train_step.h"

namespace gpt::plan {
namespace {

using Clock = std::chrono::steady_clock;

// A step reaches between a fifth and a half of the speed of its matrix products alone.
constexpr double kUsualShare = 0.3;

// `warm_up`: updates before those that are timed.
int64_t batch_size_for(const Config& config, double product_speed, int64_t largest_batch, double seconds,
                       int64_t warm_up) {
  const double per_sequence =
      flops_per_token(config.model) * static_cast<double>(config.model.block_size) / (kUsualShare * product_speed);
  const auto updates = static_cast<double>(2 * warm_up + 2);  // that should fit into the time
  return std::min<int64_t>(largest_batch, static_cast<int64_t>(seconds / updates / per_sequence));
}

struct Measured {
  double seconds = 0;  // of the median update
  int64_t updates = 0;
};

Measured measure(run::State& state, run::TrainStep& step, int64_t micro_batches, at::Device device, double seconds) {
  constexpr double kLearningRate = 0;  // nothing is learned
  std::vector<double> updates;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    const auto begin = Clock::now();
    (void)run::run_update(step, state.loader, micro_batches, kLearningRate, [] { return process::stop_signal() != 0; });
    synchronize(device);  // sync: the update is timed
    if (process::stop_signal() != 0) throw Error(ExitCode::interrupted, "interrupted");
    updates.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  } while (Clock::now() < end);
  std::sort(updates.begin(), updates.end());
  return {updates[updates.size() / 2], std::ssize(updates)};
}

}  // namespace

std::optional<Trial> try_steps(const Config& config, const Corpus& corpus, const DeviceInfo& device,
                               const Precision& precision, double product_speed, int64_t largest_batch,
                               double seconds) {
  Config small = config;
  small.data.stages.clear();
  small.data.order =
      DataOrder::random;  // which batches they are does not matter, and another order takes reading the text
  run::Recorder recorder = run::recorder_for(small.training, small.model, device.device);
  const int64_t warm_up = recorder.records() ? run::Recorder::kRunsBefore + 1 : 1;
  small.training.batch_size =
      batch_size_for(config, product_speed, std::min(largest_batch, config.training.batch_size), seconds, warm_up);
  if (small.training.batch_size == 0) return std::nullopt;

  run::State state(small, corpus, device.device, precision);
  run::TrainStep step(state.model, state.optimizer, state.scaler, precision, small.training, std::move(recorder));
  const double part = seconds / 2;
  const auto measure_updates_of = [&](int64_t micro_batches) {
    for (int64_t i = 0; i < warm_up; ++i) (void)measure(state, step, micro_batches, device.device, 0);
    return measure(state, step, micro_batches, device.device, part);
  };
  const Measured one = measure_updates_of(1);
  const bool is_whole =
      small.training.batch_size == config.training.batch_size && config.training.gradient_accumulation_steps == 1;
  if (is_whole) return Trial{one.seconds, one.updates, small.training.batch_size};
  // What a second micro-step adds is the forward and backward pass; the rest is the optimizer's.
  const Measured two = measure_updates_of(2);
  const double micro_step = std::clamp(two.seconds - one.seconds, one.seconds / 4, one.seconds);
  const double sequences =
      static_cast<double>(config.training.batch_size * config.training.gradient_accumulation_steps);
  return Trial{one.seconds - micro_step + micro_step * sequences / static_cast<double>(small.training.batch_size),
               one.updates + two.updates, small.training.batch_size};
}

}  // namespace gpt::plan
