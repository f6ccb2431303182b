#include "gpt/run/longer_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/run/plan.h"

namespace gpt::run {
namespace {

// With the warm-up that a run along wsd has had.
ScheduleConfig schedule_of(const Config& config, const Checkpoint& checkpoint) {
  ScheduleConfig schedule = config.training.schedule;
  if (schedule.lr_schedule == LrSchedule::wsd && !schedule.warmup_steps)
    schedule.warmup_steps = checkpoint.warmup_steps;
  return schedule;
}

std::optional<int64_t> steps_before(const Config& config, const Checkpoint& checkpoint, int64_t steps_per_epoch) {
  const ScheduleConfig schedule = schedule_of(config, checkpoint);
  return steps_before_decay(schedule, total_steps(schedule, steps_per_epoch));
}

double next_rate(const Config& config, const Checkpoint& checkpoint, int64_t steps_per_epoch) {
  const ScheduleConfig schedule = schedule_of(config, checkpoint);
  return learning_rate_at(schedule, checkpoint.step, total_steps(schedule, steps_per_epoch), checkpoint.plateau);
}

}  // namespace

std::optional<std::string> checkpoint_before_decay(const StartingPoint& start, const Config& now,
                                                   int64_t steps_per_epoch) {
  const Checkpoint& checkpoint = start.checkpoint;
  const auto then = steps_before(checkpoint.config, checkpoint, steps_per_epoch),
             later = steps_before(now, checkpoint, steps_per_epoch);
  if (!then || !later || checkpoint.step <= *then) return std::nullopt;
  const std::filesystem::path folder = std::filesystem::path(start.path).parent_path();
  std::error_code ignored;
  std::optional<int64_t> newest;
  for (const std::string& name : names_in(folder.string(), ignored)) {
    const auto step = is_stable(name) ? step_in_name(name) : std::nullopt;
    if (step && *step <= checkpoint.step && *step < *later) newest = std::max(newest.value_or(0), *step);
  }
  if (!newest) return std::nullopt;
  return (folder / stable_checkpoint(*newest)).string();
}

void move_before_decay(StartingPoint& start, const Config& now, int64_t steps_per_epoch) {
  if (std::filesystem::path(start.path).filename() != kLastCheckpoint) return;
  if (const auto path = checkpoint_before_decay(start, now, steps_per_epoch)) start = {load_checkpoint(*path), *path};
}

std::optional<std::string> describe_rate_change(const Checkpoint& checkpoint, const Config& now,
                                                int64_t steps_per_epoch) {
  constexpr double kFelt = 0.01;  // a share of the rate
  const double then = next_rate(checkpoint.config, checkpoint, steps_per_epoch),
               rate = next_rate(now, checkpoint, steps_per_epoch);
  if (std::abs(rate - then) <= kFelt * then) return std::nullopt;
  return fmt::format("The learning rate of step {} is {:.3g}, and would have been {:.3g} without the changes",
                     with_commas(checkpoint.step + 1), rate, then);
}

}  // namespace gpt::run
