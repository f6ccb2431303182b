// The learning rate of every update: linear warm-up, then a cosine down to min_lr (or constant).
#pragma once

#include <cstdint>

#include "gpt/config/training_config.h"

namespace gpt {

// Rate of update `step` (0-based) of `total_steps`. As in nanoGPT: (step + 1) / (warmup + 1) during warm-up, then
// min_lr + (lr - min_lr) (1 + cos(pi (step - warmup) / (total - warmup))) / 2.
double learning_rate_at(const ScheduleConfig& config, int64_t step, int64_t total_steps);

// warmup_steps, or what auto means: 1000, but at most a tenth of the run.
int64_t warmup_steps(const ScheduleConfig& config, int64_t total_steps);

}  // namespace gpt
