// The length of a run and the learning rate along it. In YAML these are keys of `training:`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpt/config/interval.h"

namespace gpt {

enum class LrSchedule { cosine, constant, linear, wsd, plateau };  // wsd: warm-up, stable, decay
enum class DecayShape { linear, one_minus_sqrt };                  // YAML: linear | 1-sqrt

constexpr int64_t kDefaultMaxSteps = 5000;  // the length of a run with neither epochs nor max_steps

// lr_schedule: plateau, with the names of PyTorch's ReduceLROnPlateau.
struct PlateauConfig {
  double factor = 0.5;
  int64_t patience = 2;     // validations without an improvement that are borne; one more lowers the rate
  double threshold = 1e-4;  // a loss improves where it falls by more than this share of the best
  int64_t cooldown = 0;     // validations after the rate was lowered in which none counts
};

struct ScheduleConfig {
  std::optional<int64_t> epochs;     // the length of the run: one of the two;
  std::optional<int64_t> max_steps;  // neither set: kDefaultMaxSteps, or with max_time no limit
  // The time that the run may take from the start of its process on, while that runs; 0: as long as it takes. It ends with the schedule done,
  // in as many updates as the time allows, and at most those of the two above.
  Duration max_time;
  double learning_rate = 1e-3;
  bool finds_learning_rate = false;  // learning_rate: auto, until it is found
  double min_lr = 1e-5;
  std::optional<int64_t> warmup_steps;  // auto: 1000, at most a tenth of the run
  LrSchedule lr_schedule = LrSchedule::cosine;
  // The share of the run, at its end, in which the rate of wsd decays, and how. A fifth along 1-sqrt ends at the loss of a cosine of the
  // same length, and hardly gains from more (Hägele et al., arXiv 2405.18392).
  double decay_fraction = 0.2;
  DecayShape decay_shape = DecayShape::one_minus_sqrt;
  PlateauConfig plateau;

  bool has_time() const { return max_time.seconds > 0; }
  int64_t kept_checkpoints() const { return lr_schedule == LrSchedule::wsd ? 1 : 0; }  // beside all others
};

namespace config {
struct Option;
std::vector<Option> options(ScheduleConfig& config);  // a row for each key
}  // namespace config

}  // namespace gpt
