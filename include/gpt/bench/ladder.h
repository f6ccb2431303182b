// The ladder: from plain float32 upwards, one optimization at a time, each measured in turn with the step below it, and then
// each taken away from the full set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/measurement.h"
#include "gpt/bench/rung.h"

namespace gpt {

struct LadderRow {
  std::string name, settings;
  std::optional<Measurement> measurement;  // medians of all rounds; nothing where it could not be measured
  double gain = 1;                         // speed over the step below it; median over the pairs of runs
  double total_gain = 1;                   // speed over the start, of this and all that was kept before
  bool kept = false;
  std::string verdict;  // or why there is no measurement
};

struct Ladder {
  std::vector<LadderRow> rows;     // the first is the start
  std::vector<LadderRow> removed;  // from the full set, one at a time: `gain` below 1 is what it is worth
  std::vector<LadderRow> batches;  // other batch sizes with the full set
  MeasurementLength length;
  int64_t rounds = 0;
  bool complete = false;  // not stopped by a signal
};

// Measures one configuration; nothing when a signal stopped it. Throws gpt::Error when it cannot be run.
using Measure = std::function<std::optional<Measurement>(const Config& config, const MeasurementLength& length)>;
// What is done, as a share, and what is measured now.
using Progress = std::function<void(double share, const std::string& what)>;

// Two configurations in alternating runs, so that what else the machine does meets both.
struct Comparison {
  Measurement before, after;  // medians of their runs
  double gain = 1;            // median of before.step_ms / after.step_ms over the pairs
};
std::optional<Comparison> compare(const Config& before, const Config& after, const MeasurementLength& length,
                                  int64_t rounds, const Measure& measure);

// The length of a measurement and the number of rounds so that a ladder of `count` comparisons takes about `seconds`, after one
// short measurement of the start.
struct Effort {
  MeasurementLength length;
  int64_t rounds;
};
Effort effort_for(const Measurement& start, double seconds_of_it, int64_t updates_of_it, int64_t count, double seconds);

Ladder climb(const Config& wanted, const std::vector<Rung>& rungs, double seconds, const Measure& measure,
             const Progress& progress);

}  // namespace gpt
