// The ladder: from plain float32 upwards, one optimization at a time, each measured in turn with the step below it. What helps makes
// up the full set, which is then measured beside the start; each of it is taken away, and each of the others is added. At last it
// is measured with other batches and, where there is a GPU, on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/comparison.h"
#include "gpt/bench/effort.h"
#include "gpt/bench/findings.h"
#include "gpt/bench/measurement.h"
#include "gpt/bench/rung.h"
#include "gpt/plan/limits.h"

namespace gpt::bench {

struct LadderRow {
  std::string name, settings;
  std::optional<Measurement> measurement;  // medians of all rounds; nothing where it could not be measured
  double gain = 1;                         // speed over the step below it; median over the pairs of runs
  // Speed over the start, of this and all that was kept before, as far as their gains could be told.
  double total_gain = 1;
  bool kept = false;
  bool is_told = true;                  // what it does to the speed
  double tokens_per_second_before = 0;  // of what it was measured in turn with; 0: it was measured alone
  std::string verdict;                  // or why there is no measurement
  std::vector<double> pair_gains = {};  // the gain of each pair of runs; none where it was measured alone
  std::optional<double> least_ms = {};  // of a step, at the speeds of this machine

  void take(const Comparison& pair) {
    measurement = pair.after, gain = pair.gain(), pair_gains = pair.gains;
    tokens_per_second_before = pair.before.tokens_per_second;
  }
};

struct LadderPlan {
  std::vector<Rung> rungs;
  std::vector<Rung> variants;  // variants of the full set
  bool keeps_all = false;      // what slows down or changes the loss too
  double seconds = 600;        // about; that it may take
  SpeedOf speed_of = {};       // none: how close to this machine's limit each comes is not said
};

struct Ladder {
  std::vector<LadderRow> rows;  // the first is the start
  // The start, and the full set "without" a rung of it or "with" another one; `gain` is speed over the full set.
  std::vector<LadderRow> switched;
  std::vector<LadderRow> variants;  // variants of the full set; `gain` is in tokens per second
  MeasurementLength length;
  bool complete = false;  // not stopped by a signal
};

Ladder climb(const Wanted& wanted, const LadderPlan& plan, const Measure& measure, const Progress& progress);

Findings findings(const Ladder& ladder);

}  // namespace gpt::bench
