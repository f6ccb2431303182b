#include "gpt/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpt {

int64_t warmup_steps(const ScheduleConfig& config, int64_t total_steps) {
  return config.warmup_steps.value_or(std::min<int64_t>(1000, total_steps / 10));
}

double learning_rate_at(const ScheduleConfig& config, int64_t step, int64_t total_steps) {
  const int64_t warmup = warmup_steps(config, total_steps);
  if (step < warmup) return config.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (config.lr_schedule == LrSchedule::constant) return config.learning_rate;
  if (step >= total_steps) return config.min_lr;
  const double progress = static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup);
  return config.min_lr + (config.learning_rate - config.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace gpt
