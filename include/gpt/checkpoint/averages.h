// The averages of a run's weights (training.ema_decay), where a program takes them in place of the weights.
#pragma once

#include <string>

#include "gpt/checkpoint/checkpoint.h"

namespace gpt::checkpoint {

// Puts the averages in place of the weights that the run trained. Throws gpt::Error(checkpoint), which names `path`, where there are none.
void take_averages(Checkpoint& checkpoint, const std::string& path);

// Loads what `parts` says as load_checkpoint() does, but with averages for weights.
Checkpoint load_averages(const std::string& path, Parts parts = Parts::model);

}  // namespace gpt::checkpoint
