#include "gpt/run/find_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/core/running_clock.h"
#include "gpt/device/memory.h"
#include "gpt/run/decisions.h"
#include "gpt/run/forecast.h"
#include "gpt/run/interruptions.h"
#include "gpt/run/longer_run.h"
#include "gpt/run/run.h"
#include "gpt/run/state.h"
#include "gpt/run/time_budget.h"

namespace gpt::run {
namespace {

// Updates of a run that is made for it.
class TimedUpdates {
 public:
  explicit TimedUpdates(const Setup& setup) : setup_(setup), run_(setup) { (void)run_.check_operators(false); }

  // The mean time of so many updates, in seconds.
  double time(int64_t updates) {
    const auto begin = RunningClock::now();
    for (int64_t i = 0; i < updates; ++i, ++made_)
      (void)run_update(run_.step(), run_.state().loader, run_.plan().micro_batches(made_), run_.rates(), made_,
                       [this] { return must_end(); });
    device::synchronize(setup_.device.device);  // sync: it is timed
    return seconds_since(begin) / static_cast<double>(updates);
  }
  const Run& run() const { return run_; }

 private:
  bool must_end() {
    require_no_signal(interruptions_.agree({.stop_signal = process::stop_signal()}),
                      "stopped while it measured the time of an update; the run had not begun");
    return false;
  }

  const Setup& setup_;
  Run run_;
  // Interruptions have connections of their own where state is divided: new weights are on their way meanwhile.
  Interruptions interruptions_{setup_.config.distributed.zero > 0 ? setup_.mesh.all->another() : setup_.mesh.all};
  int64_t made_ = 0;
};

TimedRun time_updates(const Setup& setup) {
  constexpr double kShare = 0.02;  // of the time, at most
  constexpr int64_t kMost = 10;
  TimedUpdates updates(setup);
  const double first = updates.time(updates_before_timing(setup.device.device, 1)),
               seconds = kShare * setup.config.training.schedule.max_time.seconds;
  const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(seconds / first), 1, kMost);
  return {.batches_per_epoch = updates.run().plan().batches_per_epoch,
          .validation_tokens = setup.corpus.validation.size(),
          .update_seconds = updates.time(setup.mesh.all->first_says(count)),
          .checkpoint_bytes = updates.run().state().checkpoint_bytes()};
}

bool is_length(const checkpoint::Decision& decision) { return decision.what == kTotalSteps; }

// The length that an earlier run had, which this one is to repeat.
std::optional<int64_t> take_decided(Beginning& begins, int64_t step) {
  const auto found =
      std::find_if(begins.decisions.begin(), begins.decisions.end(), [step](const checkpoint::Decision& decision) {
        return is_length(decision) && decision.step == step;
      });
  if (found == begins.decisions.end()) return std::nullopt;
  const auto steps = std::llround(found->value);
  begins.decisions.erase(found);
  return steps;
}

// A run without a time has its length from its configuration, also where it had a time before.
void leave_lengths_out(Beginning& begins, bool is_replay) {
  if (std::erase_if(begins.decisions, is_length) > 0 && is_replay)
    throw Error(ExitCode::config,
                "--replay: the run that decided this had a training.max_time; give this one the same");
}

// What a run was told about its length holds until its configuration says another one.
void leave_told_lengths_out(const Config& config, Beginning& begins, bool is_replay) {
  const std::string fixed = why_length_is_fixed(config.training.schedule, config.data);
  const bool has_another = begins.start && !has_same_length(begins.start->checkpoint, config.training.schedule);
  if (fixed.empty() && (!has_another || is_replay)) return;
  const auto is_told = [](const checkpoint::Decision& decision) { return decision.what == kSteps; };
  if (std::erase_if(begins.decisions, is_told) > 0 && is_replay)
    throw Error(ExitCode::config,
                fmt::format("--replay: the run that decided this was told its length, and {}", fixed));
}

// Lengths that were decided for another time or limit hold no longer. Those of a start that had what is given now, and
// was killed before it had saved, begin with the one that its course had at the checkpoint.
void leave_other_lengths_out(const ScheduleConfig& schedule, const optim::Course& course, Beginning& begins) {
  if (!begins.start || has_same_length(begins.start->checkpoint, schedule)) return;
  const auto is_of_this_course = [&](const checkpoint::Decision& decision) {
    const bool is_same = course.planned == 0 || decision.value == static_cast<double>(course.total);
    return is_length(decision) && decision.step == begins.start->checkpoint.step && is_same;
  };
  if (std::none_of(begins.decisions.begin(), begins.decisions.end(), is_of_this_course))
    std::erase_if(begins.decisions, is_length);
}

optim::Course course_of(const Setup& setup, const Beginning& begins) {
  if (!begins.start) return {};
  const Plan plan = plan_run(setup.config.training, batches_in_epoch(setup.config, setup.corpus));
  return course_with(begins.start->checkpoint, setup.config.training.schedule, plan.steps_per_epoch);
}

void require_time_left(const Duration& time, double spent, bool is_first) {
  constexpr double kMuch = 1.0 / 3;
  const std::string fact =
      fmt::format("training.max_time is {}, and the run has needed {} of it before its first update",
                  format_duration(time.seconds), format_duration(spent));
  constexpr const char* kRemedy = "prepare the text beforehand with gpt-prepare, or set a longer time";
  if (spent >= time.seconds) throw Error(ExitCode::config, fmt::format("{}: {}", fact, kRemedy));
  if (is_first && spent > kMuch * time.seconds) log::warn(fmt::format("{}: {}", fact, kRemedy));
}

}  // namespace

int64_t steps_in_time(const UpdateConfig& config, const TimedRun& run, double seconds) {
  constexpr double kBytesPerSecond = 5e8;  // of a disk
  const TrainingConfig& training = config.training;
  const int64_t fitting = updates_in(seconds, run.update_seconds, 0), length = config.sequence_length();
  const Plan plan = plan_run(training, run.batches_per_epoch, fitting);
  const int64_t tokens =
      evaluation_tokens(training, length, run.validation_tokens, most_eval_sequences(training, fitting));
  Forecast forecast(plan, evaluation_steps(training, length, tokens));
  forecast.took(Forecast::kStep, run.update_seconds);
  forecast.expect(Forecast::kCheckpoint, static_cast<double>(run.checkpoint_bytes) / kBytesPerSecond);
  const double share = seconds / std::max(seconds, forecast.remaining_seconds(0));
  const auto steps = static_cast<int64_t>(share * static_cast<double>(fitting));
  return std::clamp<int64_t>(steps, 1, most_steps(training.schedule, plan.steps_per_epoch));
}

std::optional<Plan> plan_along_course(const UpdateConfig& config, const TimedRun& run,
                                      const checkpoint::Checkpoint* start) {
  const ScheduleConfig& schedule = config.training.schedule;
  const int64_t steps_per_epoch = plan_run(config.training, run.batches_per_epoch).steps_per_epoch;
  const optim::Course course = start ? course_with(*start, schedule, steps_per_epoch) : optim::Course();
  if (course.planned > 0) {
    Plan plan = plan_run(config.training, run.batches_per_epoch, course.planned);
    plan.total_steps = course.total;
    return plan;
  }
  if (!schedule.has_time() || run.update_seconds == 0) return std::nullopt;
  return plan_run(config.training, run.batches_per_epoch, steps_in_time(config, run, schedule.max_time.seconds));
}

void find_length(Setup& setup, Beginning& begins, bool is_replay) {
  const Duration time = setup.config.training.schedule.max_time;
  leave_told_lengths_out(setup.config, begins, is_replay);
  if (time.seconds == 0) return leave_lengths_out(begins, is_replay);
  const optim::Course course = course_of(setup, begins);
  if (!is_replay) leave_other_lengths_out(setup.config.training.schedule, course, begins);
  begins.keeps_time = !is_replay || std::none_of(begins.decisions.begin(), begins.decisions.end(), is_length);
  if (course.planned > 0) return;
  const int64_t step = begins.start ? begins.start->checkpoint.step : 0;
  begins.total_steps = take_decided(begins, step);
  if (begins.total_steps) return;
  require_time_left(time, setup.mesh.all->first_says(seconds_since_start()), setup.mesh.all->is_first());
  setup.teacher = teacher_of(setup);
  const TimedRun timed = time_updates(setup);
  device::release_unused_memory(setup.device.device);
  const double left = time.seconds - seconds_since_start();
  const int64_t steps = setup.mesh.all->first_says(steps_in_time(setup.config, timed, left));
  log::info(fmt::format("training.max_time: {} are left for {} of {}, with validation", format_duration(left),
                        plural(steps, "update"), format_short_duration(timed.update_seconds)));
  const Plan plan = plan_run(setup.config.training, timed.batches_per_epoch);
  const int64_t most = most_steps(setup.config.training.schedule, plan.steps_per_epoch);
  begins.total_steps = std::max(step, std::min(step + steps, most));
}

}  // namespace gpt::run
