// The weight decay of every update, along training.weight_decay_schedule: what the learning rate's schedule is to the rate. It goes by how far
// the run is, so it follows a run of max_time, and one that becomes longer or shorter on its way.
#pragma once

#include <string>

#include "gpt/config/training_config.h"

namespace gpt::optim {

// What the schedules make of an update.
struct ScheduledRates {
  double learning_rate;
  double decay_share;  // what training.weight_decay is multiplied by, from 1 down to 0

  // A rate alone, with all of the weight decay.
  ScheduledRates(double rate, double share = 1) : learning_rate(rate), decay_share(share) {}
};

// Where the share `progress` of the run is done, with s for it: 1, 1 - s or (1 + cos(pi s)) / 2. 0 from the end of the run on.
double weight_decay_share(DecaySchedule schedule, double progress);

// "0.1, in a line down to 0 at the end of the run".
std::string describe_weight_decay(const OptimizerConfig& config);

}  // namespace gpt::optim
