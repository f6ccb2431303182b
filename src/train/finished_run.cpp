#include "gpt/train/finished_run.h"

#include <fmt/format.h>

#include <filesystem>

namespace gpt {
namespace {

bool lies_in(const std::string& file, const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::equivalent(std::filesystem::path(file).parent_path(), folder, ignored);
}

}  // namespace

std::optional<FinishedRun> find_finished(const StartingPoint& start, const Config& config,
                                         const config::Origins& origins, const RunPlan& plan, bool has_validation) {
  const Checkpoint& checkpoint = start.checkpoint;
  const int64_t step = checkpoint.step;
  if (step < plan.total_steps) return std::nullopt;
  const bool by_epochs = plan.counted_in_epochs;
  const std::string key = by_epochs ? "training.epochs" : "training.max_steps";
  if (!lies_in(start.path, config.output_dir)) {
    const std::string length =
        by_epochs ? fmt::format("training.epochs {} are {} steps", *config.training.schedule.epochs, plan.total_steps)
                  : fmt::format("training.max_steps is {}", plan.total_steps);
    const int64_t done = by_epochs ? step / plan.steps_per_epoch : step;
    return FinishedRun{
        .fact = fmt::format("{} is at step {}, but {}, and a run that resumes from it goes on counting there",
                            start.path, step, length),
        .remedy = fmt::format("set {} above {}", key, done),
        .is_foreign = true};
  }
  const bool is_evaluated = checkpoint.evaluated_step == step || plan.eval_every == 0 || !has_validation;
  if (!is_evaluated) return std::nullopt;
  // The run keeps a length that it chose itself, or that an earlier command gave, until one is given anew.
  const bool is_kept = !origins.count("training.max_steps") && !origins.count("training.epochs");
  return FinishedRun{.fact = fmt::format("{} is finished: {} of {} steps are done{}", config.output_dir, step, step,
                                         is_kept ? ", the length that it began with" : ""),
                     .remedy = fmt::format("raise {} to continue it, add --restart to start anew, or begin another run "
                                           "with --output_dir {}",
                                           key, next_free_folder(config.output_dir))};
}

}  // namespace gpt
