#include "gpt/run/plan.h"

#include <algorithm>

namespace gpt::run {
namespace {

// 0 for a time, which is not a number of steps.
int64_t interval_steps(const Interval& interval, const Plan& plan) {
  if (interval.unit == Interval::Unit::seconds) return 0;
  const bool epochs =
      interval.unit == Interval::Unit::epochs || (interval.unit == Interval::Unit::run && plan.counted_in_epochs);
  return interval.count * (epochs ? plan.steps_per_epoch : 1);
}

}  // namespace

int64_t total_steps(const ScheduleConfig& config, int64_t steps_per_epoch) {
  return config.epochs ? *config.epochs * steps_per_epoch : config.max_steps.value_or(kDefaultMaxSteps);
}

Plan plan_run(const TrainingConfig& config, int64_t batches_per_epoch) {
  Plan plan;
  plan.accumulation_ = config.gradient_accumulation_steps;
  plan.batches_per_epoch = batches_per_epoch;
  plan.steps_per_epoch = (batches_per_epoch + plan.accumulation_ - 1) / plan.accumulation_;
  plan.counted_in_epochs = config.schedule.epochs.has_value();
  plan.total_steps = total_steps(config.schedule, plan.steps_per_epoch);
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
