// The learning rate of every update: linear warm-up, then one of the schedules of training.lr_schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/training_config.h"
#include "gpt/optim/plateau.h"

namespace gpt::optim {

// Rate of update `step` (0-based) of `total_steps`, which lies between two where a run follows a course (optim/course.h). As in nanoGPT: (step + 1) / (warmup + 1) during warm-up. Then, with s for the share
// of the remaining steps that is done, min_lr + (lr - min_lr) times (1 + cos(pi s)) / 2 for cosine and 1 - s for linear; for wsd the same
// with s for the share of the decay, 1 - s or 1 - sqrt(s). `plateau`: what the validations so far have made of the rate.
double learning_rate_at(const ScheduleConfig& config, double step, int64_t total_steps, const Plateau& plateau = {});

// warmup_steps, or what auto means: 1000, but at most a tenth of the run.
int64_t warmup_steps(const ScheduleConfig& config, int64_t total_steps);

// How many updates come before the decay of wsd; nothing for other schedules.
std::optional<int64_t> steps_before_decay(const ScheduleConfig& config, int64_t total_steps);

// "1.0e-03 after a warm-up of 100 steps, then constant, and from step 4,000 on down to 1.0e-05 (1-sqrt)".
std::string describe_schedule(const ScheduleConfig& config, int64_t total_steps);

}  // namespace gpt::optim
