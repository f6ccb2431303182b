#include "gpt/optim/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gpt/core/format.h"

namespace gpt::optim {
namespace {

// What is left of the way from learning_rate down to min_lr where the share `done` of it is done.
double height(const ScheduleConfig& config, double done) {
  if (config.lr_schedule == LrSchedule::cosine) return 0.5 * (1 + std::cos(std::numbers::pi * done));
  const bool by_root = config.lr_schedule == LrSchedule::wsd && config.decay_shape == DecayShape::one_minus_sqrt;
  return 1 - (by_root ? std::sqrt(done) : done);
}

}  // namespace

int64_t warmup_steps(const ScheduleConfig& config, int64_t total_steps) {
  return config.warmup_steps.value_or(std::min<int64_t>(1000, total_steps / 10));
}

std::optional<int64_t> steps_before_decay(const ScheduleConfig& config, int64_t total_steps) {
  if (config.lr_schedule != LrSchedule::wsd) return std::nullopt;
  const int64_t decay = std::max<int64_t>(1, std::llround(config.decay_fraction * static_cast<double>(total_steps)));
  return std::max(warmup_steps(config, total_steps), total_steps - decay);
}

double learning_rate_at(const ScheduleConfig& config, double step, int64_t total_steps, const Plateau& plateau) {
  const auto warmup = static_cast<double>(warmup_steps(config, total_steps));
  double peak = config.learning_rate;
  if (config.lr_schedule == LrSchedule::plateau) peak = std::max(config.min_lr, plateau.factor * peak);
  if (step < warmup) return peak * (step + 1) / (warmup + 1);
  if (config.lr_schedule == LrSchedule::constant || config.lr_schedule == LrSchedule::plateau) return peak;
  const std::optional<int64_t> stable = steps_before_decay(config, total_steps);
  const double begin = stable ? static_cast<double>(*stable) : warmup, end = static_cast<double>(total_steps);
  if (stable && step <= begin) return peak;
  if (step >= end) return config.min_lr;
  const double done = (step - begin) / (end - begin);
  return config.min_lr + (config.learning_rate - config.min_lr) * height(config, done);
}

std::string describe_schedule(const ScheduleConfig& config, int64_t total_steps) {
  const auto rate = [](double value) { return fmt::format("{:.3g}", value); };
  const std::string peak = config.finds_learning_rate ? "auto (found by short runs)" : rate(config.learning_rate);
  const std::string begin = fmt::format("{} after a warm-up of {}", peak,
                                        plural(warmup_steps(config, total_steps), "step")),
                    end = rate(config.min_lr);
  switch (config.lr_schedule) {
    case LrSchedule::cosine: return fmt::format("{}, then along a cosine down to {}", begin, end);
    case LrSchedule::linear: return fmt::format("{}, then in a line down to {}", begin, end);
    case LrSchedule::constant: return begin + ", then constant";
    case LrSchedule::wsd:
      return fmt::format("{}, then constant, and after step {} down to {} ({})", begin,
                         with_commas(*steps_before_decay(config, total_steps)), end,
                         config.decay_shape == DecayShape::linear ? "linear" : "1-sqrt");
    case LrSchedule::plateau:
      return fmt::format("{}, then times {:.3g} after more than {} without a lower loss, down to {}", begin,
                         config.plateau.factor, plural(config.plateau.patience, "validation"), end);
  }
  return begin;
}

}  // namespace gpt::optim
