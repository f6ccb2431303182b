#include "gpt/optim/plateau.h"

#include <algorithm>
#include <utility>

namespace gpt::optim {

bool take_note(Plateau& plateau, const ScheduleConfig& config, double loss) {
  if (loss < plateau.best * (1 - config.plateau.threshold)) {
    plateau.best = loss;
    plateau.without_improvement = 0;
  } else {
    ++plateau.without_improvement;
  }
  if (plateau.cooling_down > 0) {
    --plateau.cooling_down;
    plateau.without_improvement = 0;
  }
  if (plateau.without_improvement <= config.plateau.patience) return false;
  plateau.without_improvement = 0;
  plateau.cooling_down = config.plateau.cooldown;
  const double lowest = config.learning_rate > 0 ? config.min_lr / config.learning_rate : 1;
  const double before = std::exchange(plateau.factor, std::max(plateau.factor * config.plateau.factor, lowest));
  return plateau.factor < before;
}

}  // namespace gpt::optim
