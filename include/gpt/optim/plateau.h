// lr_schedule: plateau, the rule of PyTorch's ReduceLROnPlateau (mode min, threshold_mode rel): what it remembers of the validations of a
// run, which the checkpoint keeps, and what follows from another one.
#pragma once

#include <cstdint>
#include <limits>

#include "gpt/config/training_config.h"

namespace gpt::optim {

struct Plateau {
  double best = std::numeric_limits<double>::infinity();  // the best validation loss that was an improvement
  int64_t without_improvement = 0;                        // validations since then, or since the rate was lowered
  int64_t cooling_down = 0;                               // validations to come that do not count
  double factor = 1;                                      // what the rate of the configuration is multiplied by
  bool operator==(const Plateau&) const = default;
};

// Takes note of a validation loss, which may be NaN: no improvement. True: from now on the rate is lower.
bool take_note(Plateau& plateau, const ScheduleConfig& config, double loss);

}  // namespace gpt::optim
