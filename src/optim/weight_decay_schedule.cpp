#include "gpt/optim/weight_decay_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpt::optim {

double weight_decay_share(DecaySchedule schedule, double progress) {
  const double done = std::clamp(progress, 0.0, 1.0);
  switch (schedule) {
    case DecaySchedule::constant: break;
    case DecaySchedule::linear: return 1 - done;
    case DecaySchedule::cosine: return 0.5 * (1 + std::cos(std::numbers::pi * done));
  }
  return 1;
}

std::string describe_weight_decay(const OptimizerConfig& config) {
  const bool is_constant = config.decay_schedule == DecaySchedule::constant || config.weight_decay == 0;
  const char* const way = config.decay_schedule == DecaySchedule::linear ? "in a line" : "along a cosine";
  return fmt::format("{:.3g}{}", config.weight_decay,
                     is_constant ? ", constant" : fmt::format(", {} down to 0 at the end of the run", way));
}

}  // namespace gpt::optim
