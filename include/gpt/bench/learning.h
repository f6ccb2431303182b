// How the validation loss of a run falls: what techniques are compared by that are more than a matter of speed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpt/run/setup.h"

namespace gpt::bench {

// The validation loss along some updates of one run.
struct Learning {
  int64_t parameters = 0;
  // The median update, or the median of the means of groups; of a variant, that of the first one over its gain in alternating runs.
  double step_ms = 0;
  double tokens_per_update = 0;  // mean
  int64_t threads = 0;           // CPU threads that LibTorch used
  struct Point {
    int64_t updates;
    double loss;
  };
  std::vector<Point> points;  // from 0 updates on

  // The loss after so many updates, between two points on the line that joins them.
  double loss_after(double updates) const;
};

struct LearningLength {
  int64_t updates = 100;
  int64_t evaluations = 8;  // beside that before the first update; of the run's training.eval_batches each
};

// In this process, which draws from its random state: no run may follow. Throws gpt::Error(interrupted) on a signal.
Learning learn(run::Setup setup, const LearningLength& length);

std::string to_json(const Learning& learning);
Learning learning_from_json(const std::string& text);

}  // namespace gpt::bench
