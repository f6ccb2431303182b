#include "gpt/plan/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/processors.h"
#include "gpt/layout/tuning.h"
#include "gpt/model/compile.h"
#include "gpt/optim/muon.h"
#include "gpt/run/run.h"
#include "gpt/run/teacher.h"

namespace gpt::plan {
namespace {

// A step reaches between a fifth and a half of the speed of its matrix products alone.
constexpr double kUsualShare = 0.3;
// As many times the wished time may a trial take rather than tell nothing, and rather than measure a part of an update: a smaller batch
// takes longer for each of its sequences.
constexpr double kPatience = 20, kPatienceForWhole = 4;

// `warm_up`: updates before those that are timed.
int64_t batch_size_for(const Config& config, double product_speed, int64_t largest_batch, double seconds,
                       int64_t warm_up) {
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(config.model, config.training.tuning);
  const double speed = kUsualShare * product_speed,
               of_muon = optim::muon_work(rows, config.training.optimizer).flops / speed,
               per_token = layout::flops_per_token(in_training(config.model, config.training), rows) +
                           run::teacher_flops_per_token(config.model, config.training),
               per_sequence = per_token * static_cast<double>(config.sequence_length()) / speed;
  const int64_t whole = config.training.gradient_accumulation_steps == 1 ? config.training.batch_size : 0;
  const double of_whole = static_cast<double>(warm_up + 1) * (of_muon + static_cast<double>(whole) * per_sequence);
  if (whole > 0 && whole <= largest_batch && of_whole <= kPatienceForWhole * seconds) return whole;
  const auto updates = static_cast<double>(2 * warm_up + 2);  // that should fit into the time
  const double sequences = std::max(0.0, seconds / updates - of_muon) / per_sequence;
  if (sequences >= 1) return std::min<int64_t>(largest_batch, static_cast<int64_t>(sequences));
  const double of_one = updates * (of_muon + per_sequence);
  if (of_one > kPatience * seconds) return 0;
  log::info(fmt::format("Timing real steps of one sequence, which may take {}", format_duration(of_one)));
  return 1;
}

}  // namespace

std::optional<Trial> try_steps(const run::Setup& setup, double product_speed, int64_t largest_batch, double seconds) {
  const TrainingConfig& training = setup.config.training;
  const bool records = model::effective_mode(training, setup.config.model, setup.device.device).records;
  const int64_t warm_up = records ? run::Recorder::kRunsBefore + 1 : 1;
  const int64_t batch_size =
      batch_size_for(setup.config, product_speed, std::min(largest_batch, training.batch_size), seconds, warm_up);
  if (batch_size == 0) return std::nullopt;

  run::Setup small = run::for_trial(setup);
  small.config.training.batch_size = batch_size;
  run::Run run(small);
  run.check_operators(/*is_told=*/false);  // as gpt-train does
  return time_updates(
      training, batch_size, warm_up, seconds, [&](int64_t micro_batches) { run.try_update(micro_batches); },
      seconds_since_boot);
}

Trial time_updates(const TrainingConfig& training, int64_t batch_size, int64_t warm_up, double seconds,
                   const std::function<void(int64_t micro_batches)>& update, const std::function<double()>& now) {
  struct Measured {
    double seconds = 0;  // the time of the median update
    int64_t updates = 0;
  };
  const auto measure_updates_of = [&](int64_t micro_batches) {
    for (int64_t i = 0; i < warm_up; ++i) update(micro_batches);
    std::vector<double> times;
    const double end = now() + seconds / 2;
    do {
      const double begin = now();
      update(micro_batches);
      times.push_back(now() - begin);
    } while (now() < end);
    std::sort(times.begin(), times.end());
    return Measured{times[times.size() / 2], std::ssize(times)};
  };
  const Measured one = measure_updates_of(1);
  const bool is_whole = batch_size == training.batch_size && training.gradient_accumulation_steps == 1;
  if (is_whole) return Trial{.step_seconds = one.seconds, .updates = one.updates, .batch_size = batch_size};
  // What a second micro-step adds is the forward and backward pass; the rest is the optimizer's.
  const Measured two = measure_updates_of(2);
  const double micro_step = std::clamp(two.seconds - one.seconds, one.seconds / 4, one.seconds);
  const auto sequences = static_cast<double>(training.batch_size * training.gradient_accumulation_steps);
  const double rest = one.seconds - micro_step;
  return Trial{.step_seconds = rest + micro_step * sequences / static_cast<double>(batch_size),
               .update_seconds = rest,
               .updates = one.updates + two.updates,
               .batch_size = batch_size};
}

}  // namespace gpt::plan
