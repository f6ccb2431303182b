#include "gpt/run/finished.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gpt/core/format.h"

namespace gpt::run {
namespace {

bool lies_in(const std::string& file, const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::equivalent(std::filesystem::path(file).parent_path(), folder, ignored);
}

FinishedRun out_of_patience(const StartingPoint& start, const Config& config, const Plan& plan) {
  const bool is_foreign = !lies_in(start.path, config.output_dir);
  const int64_t count = start.checkpoint.evaluations_since_best;
  return {.fact = fmt::format("{} is finished: it ended after step {} of {}, with no new best in {}",
                              is_foreign ? start.path : config.output_dir, with_commas(start.checkpoint.step),
                              with_commas(plan.total_steps), plural(count, "evaluation")),
          .remedy = fmt::format("set training.patience above {}, or to 0, to continue it{}", count,
                                is_foreign ? ""
                                           : fmt::format(", add --restart to start anew, or begin another run with "
                                                         "--output_dir {}",
                                                         next_free_folder(config.output_dir))),
          .is_foreign = is_foreign};
}

}  // namespace

std::optional<FinishedRun> find_finished(const StartingPoint& start, const Config& config,
                                         const config::Origins& origins, const Plan& plan, bool has_validation) {
  const checkpoint::Checkpoint& checkpoint = start.checkpoint;
  const int64_t step = checkpoint.step, patience = config.training.cadence.patience;
  if (step < plan.total_steps && (patience == 0 || checkpoint.evaluations_since_best < patience)) return std::nullopt;
  if (step < plan.total_steps) return out_of_patience(start, config, plan);
  const ScheduleConfig& schedule = config.training.schedule;
  // What limits a run of max_time besides. Without a time there is nothing: a run that was told to be longer goes
  // beyond its max_steps.
  const int64_t most = schedule.has_time() ? most_steps(schedule, plan.steps_per_epoch) : plan.total_steps,
                end = std::min(plan.total_steps, most);
  const bool has_course = checkpoint.course.planned > 0 && schedule.has_time(),
             by_time = has_course && plan.total_steps < most, by_epochs = !by_time && plan.counted_in_epochs;
  const std::string key = by_time ? "training.max_time" : by_epochs ? "training.epochs" : "training.max_steps";
  const int64_t steps_or_epochs = by_epochs ? step / plan.steps_per_epoch : step;
  if (!lies_in(start.path, config.output_dir)) {
    const std::string length = by_epochs ? fmt::format("training.epochs {} are {} steps", *schedule.epochs, end)
                                         : fmt::format("{} {} {}", key, by_time ? "ends after step" : "is", end);
    return FinishedRun{
        .fact = fmt::format("{} is at step {}, but {}, and a run that resumes from it goes on counting there",
                            start.path, step, length),
        .remedy = fmt::format("{}, or begin a new run with its weights: training.init_from instead of resume_from",
                              by_time ? "set a longer training.max_time"
                                      : fmt::format("set {} above {}", key, steps_or_epochs)),
        .is_foreign = true};
  }
  if (step > end) {
    const std::string length = by_epochs ? fmt::format("epochs {} ({})", *schedule.epochs, plural(end, "step"))
                                         : fmt::format("max_steps {}", end);
    return FinishedRun{.fact = fmt::format("{} is at step {} already, beyond {}", config.output_dir, with_commas(step),
                                           length),
                       .remedy = fmt::format("set {} above {} to continue, or choose another output_dir, such as {}",
                                             key, steps_or_epochs, next_free_folder(config.output_dir))};
  }
  const bool is_evaluated = checkpoint.evaluated_step == step || plan.eval_every == 0 || !has_validation;
  if (!is_evaluated) return std::nullopt;
  // The run keeps a length that it chose itself, or that an earlier command gave, until one is given anew.
  const bool is_kept = !by_time && !origins.count("training.max_steps") && !origins.count("training.epochs");
  const std::string steps = with_commas(step);
  return FinishedRun{.fact = fmt::format("{} is finished: {} of {} steps are done{}", config.output_dir, steps, steps,
                                         is_kept ? ", the length that it began with" : ""),
                     .remedy = fmt::format("raise {} to continue it, add --restart to start anew, or begin another run "
                                           "with --output_dir {}",
                                           has_course && !by_time ? "training.max_time and " + key : key,
                                           next_free_folder(config.output_dir))};
}

}  // namespace gpt::run
