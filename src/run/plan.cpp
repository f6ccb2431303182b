#include "gpt/run/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpt::run {
namespace {

// 0 for a time, which is not a number of steps.
int64_t interval_steps(const Interval& interval, const Plan& plan) {
  if (interval.unit == Interval::Unit::seconds || interval.count == 0) return 0;
  if (interval.unit == Interval::Unit::percent)
    return std::max<int64_t>(1, std::llround(0.01 * static_cast<double>(interval.count * plan.total_steps)));
  const bool epochs =
      interval.unit == Interval::Unit::epochs || (interval.unit == Interval::Unit::run && plan.counted_in_epochs);
  return interval.count * (epochs ? plan.steps_per_epoch : 1);
}

}  // namespace

int64_t total_steps(const ScheduleConfig& config, int64_t steps_per_epoch) {
  return config.epochs ? *config.epochs * steps_per_epoch : config.max_steps.value_or(kDefaultMaxSteps);
}

int64_t most_steps(const ScheduleConfig& config, int64_t steps_per_epoch) {
  const bool is_limited = config.epochs || config.max_steps || !config.has_time();
  return is_limited ? total_steps(config, steps_per_epoch) : std::numeric_limits<int64_t>::max();
}

Plan plan_run(const TrainingConfig& config, int64_t batches_per_epoch, std::optional<int64_t> steps_in_time) {
  Plan plan;
  plan.accumulation_ = config.gradient_accumulation_steps;
  plan.batches_per_epoch = batches_per_epoch;
  plan.steps_per_epoch = (batches_per_epoch + plan.accumulation_ - 1) / plan.accumulation_;
  plan.counted_in_epochs = config.schedule.epochs.has_value();
  plan.total_steps = steps_in_time.value_or(total_steps(config.schedule, plan.steps_per_epoch));
  plan.eval_every = interval_steps(config.cadence.eval_interval, plan);
  plan.checkpoint_every = interval_steps(config.cadence.checkpoint_interval, plan);
  if (config.cadence.checkpoint_interval.unit == Interval::Unit::seconds) {
    plan.checkpoint_seconds = static_cast<double>(config.cadence.checkpoint_interval.count);
  }
  plan.sample_every = interval_steps(config.cadence.sample_interval, plan);
  return plan;
}

int64_t Plan::micro_batches(int64_t step) const {
  const int64_t first = (step % steps_per_epoch) * accumulation_;
  return std::min(accumulation_, batches_per_epoch - first);
}

}  // namespace gpt::run
