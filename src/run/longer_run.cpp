#include "gpt/run/longer_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/optim/lr_schedule.h"
#include "gpt/optim/weight_decay_schedule.h"
#include "gpt/run/plan.h"

namespace gpt::run {

bool has_same_length(const checkpoint::Checkpoint& checkpoint, const ScheduleConfig& schedule) {
  const ScheduleConfig& before = checkpoint.config.training.schedule;
  return before.epochs == schedule.epochs && before.max_steps == schedule.max_steps &&
         before.max_time == schedule.max_time;
}

optim::Course course_with(const checkpoint::Checkpoint& checkpoint, const ScheduleConfig& schedule,
                          int64_t steps_per_epoch) {
  const double before = checkpoint.config.training.schedule.max_time.seconds, now = schedule.max_time.seconds;
  if (now == 0) return has_same_length(checkpoint, schedule) ? checkpoint.course : optim::Course();
  if (before == 0) return {};
  optim::Course course = checkpoint.course;
  if (course.planned == 0) return course;
  if (before != now) course.stretch(now / before, checkpoint.step);
  const int64_t most = most_steps(schedule, steps_per_epoch);
  if (course.total > most) course.end_at(most, checkpoint.step);
  return course;
}

namespace {

// With the warm-up that a run along wsd has had.
ScheduleConfig schedule_of(ScheduleConfig schedule, const checkpoint::Checkpoint& checkpoint) {
  if (schedule.lr_schedule == LrSchedule::wsd && !schedule.warmup_steps)
    schedule.warmup_steps = checkpoint.warmup_steps;
  return schedule;
}

// Where the checkpoint is on the schedule of this configuration, and how many updates that is laid out for.
struct Place {
  double position = 0;
  int64_t steps = 0;
};

Place place_of(const ScheduleConfig& schedule, const checkpoint::Checkpoint& checkpoint, int64_t steps_per_epoch) {
  const optim::Course course = course_with(checkpoint, schedule, steps_per_epoch);
  return {course.position_at(checkpoint.step),
          course.planned > 0 ? course.planned : total_steps(schedule, steps_per_epoch)};
}

std::optional<int64_t> steps_before(const ScheduleConfig& schedule, const checkpoint::Checkpoint& checkpoint,
                                    int64_t steps_per_epoch) {
  return optim::steps_before_decay(schedule_of(schedule, checkpoint),
                                   place_of(schedule, checkpoint, steps_per_epoch).steps);
}

double next_rate(const ScheduleConfig& schedule, const checkpoint::Checkpoint& checkpoint, int64_t steps_per_epoch) {
  const Place place = place_of(schedule, checkpoint, steps_per_epoch);
  return checkpoint.learning_rate_factor *
         optim::learning_rate_at(schedule_of(schedule, checkpoint), place.position, place.steps, checkpoint.plateau);
}

double next_weight_decay(const TrainingConfig& training, const checkpoint::Checkpoint& checkpoint,
                         int64_t steps_per_epoch) {
  const Place place = place_of(training.schedule, checkpoint, steps_per_epoch);
  const OptimizerConfig& optimizer = training.optimizer;
  return optimizer.weight_decay *
         optim::weight_decay_share(optimizer.decay_schedule, place.position / static_cast<double>(place.steps));
}

// "The learning rate of step 101 is 0.001, and would have been 1e-05 without the changes".
std::optional<std::string> change_at(const checkpoint::Checkpoint& checkpoint, const char* what, double then,
                                     double now) {
  constexpr double kFelt = 0.01;  // a share of what it was
  if (std::abs(now - then) <= kFelt * then) return std::nullopt;
  return fmt::format("The {} of step {} is {:.3g}, and would have been {:.3g} without the changes", what,
                     with_commas(checkpoint.step + 1), now, then);
}

}  // namespace

std::optional<std::string> checkpoint_before_decay(const StartingPoint& start, const ScheduleConfig& now,
                                                   int64_t steps_per_epoch) {
  const checkpoint::Checkpoint& checkpoint = start.checkpoint;
  const auto then = steps_before(checkpoint.config.training.schedule, checkpoint, steps_per_epoch),
             later = steps_before(now, checkpoint, steps_per_epoch);
  const double position = place_of(checkpoint.config.training.schedule, checkpoint, steps_per_epoch).position;
  if (!then || !later || *later <= *then || position <= static_cast<double>(*then)) return std::nullopt;
  const double per_step = position / static_cast<double>(checkpoint.step);  // 1, unless it follows a course
  const std::filesystem::path folder = std::filesystem::path(start.path).parent_path();
  std::error_code ignored;
  std::optional<int64_t> newest;
  for (const std::string& name : names_in(folder.string(), ignored)) {
    const auto step = checkpoint::is_stable(name) ? checkpoint::step_in_name(name) : std::nullopt;
    const bool is_before = step && per_step * static_cast<double>(*step) < static_cast<double>(*later);
    if (is_before && *step <= checkpoint.step) newest = std::max(newest.value_or(0), *step);
  }
  if (!newest) return std::nullopt;
  return (folder / checkpoint::stable_checkpoint(*newest)).string();
}

void move_before_decay(StartingPoint& start, const ScheduleConfig& now, int64_t steps_per_epoch) {
  if (std::filesystem::path(start.path).filename() != checkpoint::kLastCheckpoint) return;
  if (const auto path = checkpoint_before_decay(start, now, steps_per_epoch))
    start = {checkpoint::load_checkpoint(*path), *path};
}

std::optional<std::string> describe_rate_change(const checkpoint::Checkpoint& checkpoint, const ScheduleConfig& now,
                                                int64_t steps_per_epoch) {
  return change_at(checkpoint, "learning rate",
                   next_rate(checkpoint.config.training.schedule, checkpoint, steps_per_epoch),
                   next_rate(now, checkpoint, steps_per_epoch));
}

std::optional<std::string> describe_decay_change(const checkpoint::Checkpoint& checkpoint, const TrainingConfig& now,
                                                 int64_t steps_per_epoch) {
  const TrainingConfig& then = checkpoint.config.training;
  const auto is_constant = [](const TrainingConfig& training) {
    return training.optimizer.decay_schedule == DecaySchedule::constant;
  };
  if (is_constant(then) && is_constant(now)) return std::nullopt;  // the list of changes says it all
  return change_at(checkpoint, "weight decay", next_weight_decay(then, checkpoint, steps_per_epoch),
                   next_weight_decay(now, checkpoint, steps_per_epoch));
}

}  // namespace gpt::run
