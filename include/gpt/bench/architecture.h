// What changes of the architecture do to the loss: `gpt-bench architecture`. Each variant learns from the same batches; the
// validation loss is compared after the same number of tokens and after the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/effort.h"
#include "gpt/bench/findings.h"
#include "gpt/config/config.h"

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

  // After so many updates, between two points on the line that joins them.
  double loss_after(double updates) const;
};

struct LearningLength {
  int64_t updates = 100;
  int64_t evaluations = 8;  // beside that before the first update; of the run's training.eval_batches each
};

// In this process, which draws from its random state: no run may follow. Throws gpt::Error(interrupted) on a signal.
Learning learn(const Config& config, const LearningLength& length);

std::string to_json(const Learning& learning);
Learning learning_from_json(const std::string& text);

// Learns one configuration; nothing when a signal stopped it. Throws gpt::Error when it cannot be run.
using Learn = std::function<std::optional<Learning>(const Config& config, const LearningLength& length)>;

struct Variant {
  std::string name;  // as the configuration has it: "mlp: geglu"
  std::optional<Learning> learning;
  std::string verdict;  // or why nothing was learned
};

struct ArchitectureComparison {
  std::vector<Variant> variants;  // the first as configured, the second the same with another seed
  LearningLength length;
  int64_t eval_batches = 0, batch_size = 0;  // batches of an evaluation; sequences in each
  bool complete = false;
};

ArchitectureComparison compare_architectures(const Config& wanted, double seconds, const Measure& measure,
                                             const Learn& learn, const Progress& progress);

Findings findings(const ArchitectureComparison& comparison);

}  // namespace gpt::bench
