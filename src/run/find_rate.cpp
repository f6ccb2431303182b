#include "gpt/run/find_rate.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/core/running_clock.h"
#include "gpt/layout/tuning.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/run/find_length.h"
#include "gpt/run/interruptions.h"
#include "gpt/run/run.h"
#include "gpt/run/state.h"
#include "gpt/run/teacher.h"

namespace gpt::run {
namespace {

using Clock = std::chrono::steady_clock;

// All trials together. With max_time their time is part of it.
double most_seconds(const ScheduleConfig& schedule) {
  constexpr double kMost = 180, kShare = 0.2;
  return schedule.has_time() ? std::min(kMost, kShare * schedule.max_time.seconds) : kMost;
}

// The schedule of a trial: the run's warm-up, up to half of it, and then down to min_lr in the run's way.
ScheduleConfig schedule_for(const ScheduleConfig& of_run, int64_t run_steps, double rate, int64_t updates) {
  const bool decays = of_run.lr_schedule != LrSchedule::constant && of_run.lr_schedule != LrSchedule::plateau;
  ScheduleConfig schedule = of_run;
  schedule.learning_rate = rate;
  schedule.warmup_steps = std::min(optim::warmup_steps(of_run, run_steps), updates / 2);
  schedule.lr_schedule = !decays                                    ? LrSchedule::constant
                         : of_run.lr_schedule == LrSchedule::linear ? LrSchedule::linear
                                                                    : LrSchedule::cosine;
  return schedule;
}

// The mean time of an update of the trials, but for the first ones of each, which take longer.
class TrialPace {
 public:
  explicit TrialPace(int64_t left_out) : left_out_(left_out) {}

  void begin() { last_.reset(); }  // another trial
  // So many updates of it have ended, as the device says.
  void ended(int64_t updates) {
    const Moment now{updates, RunningClock::now()};
    if (last_) {
      seconds_ += std::chrono::duration<double>(now.time - last_->time).count();
      updates_ += now.updates - last_->updates;
    }
    if (updates >= left_out_) last_ = now;
  }
  double seconds() const { return updates_ == 0 ? 0 : seconds_ / static_cast<double>(updates_); }  // 0: not known

 private:
  struct Moment {
    int64_t updates = 0;
    RunningClock::time_point time;
  };

  int64_t left_out_, updates_ = 0;
  double seconds_ = 0;
  std::optional<Moment> last_;
};

class Trials {
 public:
  Trials(const Setup& setup, const Beginning& begins) : setup_(setup), begins_(begins) {
    setup_.teacher = teacher_of(setup);
  }

  std::optional<double> run(double rate, int64_t updates) {
    if (must_end()) return std::nullopt;
    Run run(setup_, begins_);
    if (setup_.device.device.is_cuda() && !is_checked_) {
      setup_.config.training.execution.use_compile = run.check_operators();
      is_checked_ = true;
    }
    const ScheduleConfig schedule =
        schedule_for(setup_.config.training.schedule, run.plan().total_steps, rate, updates);
    // The same batches for every rate, so that their difficulty cancels out; at the end, where the rate is low.
    const int64_t counted_from = updates - std::max<int64_t>(1, updates / 4);
    pace_.begin();
    double first = 0, sum = 0;
    for (int64_t update = 0; update < updates; ++update) {
      const optim::ScheduledRates rates{optim::learning_rate_at(schedule, update, updates),
                                        optim::weight_decay_share(setup_.config.training.optimizer.decay_schedule,
                                                                  static_cast<double>(update) /
                                                                      static_cast<double>(updates))};
      if (!make_update(run, rates, update)) return std::nullopt;
      const bool is_looked_at = update == 0 || update >= counted_from || update % kLookEvery == 0;
      if (!is_looked_at) continue;
      const double loss = loss_of(run);  // sync: a trial that diverges ends
      pace_.ended(update + 1);
      if (update == 0) first = loss;
      if (!std::isfinite(loss) || loss > kDiverged * first) return std::numeric_limits<double>::infinity();
      if (update >= counted_from) sum += loss;
    }
    return sum / static_cast<double>(updates - counted_from);
  }
  double update_seconds() const { return pace_.seconds(); }

 private:
  static constexpr int64_t kLookEvery = 8;
  static constexpr double kDiverged = 1.5;

  bool make_update(Run& run, const optim::ScheduledRates& rates, int64_t update) {
    const auto stop = [this] { return must_end(); };
    if (stop()) return false;
    return run_update(run.step(), run.state().loader, run.plan().micro_batches(update), rates, update, stop)
        .has_value();
  }

  // All processes compute with the loss that the first one has.
  double loss_of(Run& run) const { return setup_.mesh.all->first_says(run.step().loss().item<double>()); }

  // The time is up, by the first process's clock. Throws where a signal ends the program.
  bool must_end() {
    const bool is_late =
        setup_.mesh.all->is_first() && seconds_since(began_) > most_seconds(setup_.config.training.schedule);
    const Interruption decided = interruptions_.agree({.stop_signal = process::stop_signal(), .is_time = is_late});
    require_no_signal(decided, "stopped while it looked for a learning rate; the run had not begun");
    return decided.is_time;
  }

  Setup setup_;
  const Beginning& begins_;
  Interruptions interruptions_{setup_.mesh.all};
  const Clock::time_point began_ = Clock::now();
  bool is_checked_ = false;
  TrialPace pace_{updates_before_timing(setup_.device.device, 1)};
};

}  // namespace

int64_t search_updates(const Setup& setup, int64_t run_steps) {
  constexpr double kShare = 1.0 / 3, kCoreSpeed = 60e9, kCardSpeed = 30e12, kCardShare = 0.3;
  constexpr int64_t kMost = 3000, kMostRuns = 8;  // of small models, which are far from a minute with them
  const Config& config = setup.config;
  const device::DeviceInfo& device = setup.device;
  const TrainingConfig& training = config.training;
  const bool is_cuda = device.device.is_cuda();
  const double speed = is_cuda ? kCardShare * device.peak_flops(setup.precision.dtype).value_or(kCardSpeed / kCardShare)
                               : kCoreSpeed * static_cast<double>(at::get_num_threads());
  const auto micro_batches =
      static_cast<double>(training.gradient_accumulation_steps) / static_cast<double>(setup.mesh.data->size());
  const double per_token = layout::flops_per_token(in_training(config.model, training),
                                                   layout::parameter_table(config.model, training.tuning)) +
                           teacher_flops_per_token(config.model, training);
  const double micro_batch = per_token * static_cast<double>(training.batch_size * config.sequence_length()) / speed;
  constexpr double kOverhead = 2e-3;  // seconds of a micro-batch, whatever its size
  const double fitting = kShare * most_seconds(training.schedule) / (micro_batches * (micro_batch + kOverhead));
  return std::min({kMost, static_cast<int64_t>(std::min(fitting, 1e9)), kMostRuns * run_steps});
}

int64_t expected_updates(const Setup& setup, double update_seconds, double seconds_left) {
  const Config& config = setup.config;
  const int64_t batches = batches_in_epoch(config, setup.corpus);
  if (!config.training.schedule.has_time() || update_seconds == 0)
    return plan_run(config.training, batches).total_steps;
  const TimedRun timed{.batches_per_epoch = batches,
                       .validation_tokens = setup.corpus.validation.size(),
                       .update_seconds = update_seconds,
                       .checkpoint_bytes = checkpoint_file_bytes(config, setup.corpus.tokenizer.get())};
  return steps_in_time(config, timed, seconds_left);
}

std::optional<FoundRate> find_rate(const Setup& setup, const Beginning& begins) {
  const ScheduleConfig& schedule = setup.config.training.schedule;
  // With max_time it may stand for one that is not known. All the trials together are still far shorter than the run:
  // their lengths and their warm-ups, of at most a half, would be the same.
  const int64_t run_steps = expected_updates(setup, /*update_seconds=*/0, /*seconds_left=*/0);
  // What the first process's device allows, as all processes have to make the same runs.
  const int64_t updates = setup.mesh.all->first_says(search_updates(setup, run_steps));
  const RateSearch search =
      plan_search(schedule.lr_schedule == LrSchedule::constant ? 0 : schedule.min_lr, updates, run_steps);
  if (search.rates.size() < 2) {
    throw Error(ExitCode::config,
                fmt::format("training.min_lr is {}, which leaves no learning rates to choose from; lower it",
                            format_number(schedule.min_lr)));
  }
  log::info(
      fmt::format("Looking for the learning rate with short runs, the longest of {}, at rates from {:.3g} to {:.3g}",
                  plural(search.lengths.back(), "update"), search.rates.front(), search.rates.back()));
  Trials trials(setup, begins);
  const auto try_rate = [&](double rate, int64_t updates) {
    if (setup.mesh.all->is_first())
      log::status(fmt::format("looking for the learning rate: {} at {:.3g}", plural(updates, "update"), rate));
    return trials.run(rate, updates);
  };
  auto found = search_rate(search, try_rate, [&] {
    const double left = schedule.max_time.seconds - seconds_since_start();
    return setup.mesh.all->first_says(expected_updates(setup, trials.update_seconds(), left));
  });
  log::status("");
  return found;
}

}  // namespace gpt::run
