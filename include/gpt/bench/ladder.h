// The ladder: from plain float32 upwards, one optimization at a time, each measured in turn with the step below it. What helps makes
// up the full set, of which each is then taken away, and to which each of the others is added. At last the full set is measured
// with other batches and, where there is a GPU, on the CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/effort.h"
#include "gpt/bench/findings.h"
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

struct LadderPlan {
  std::vector<Rung> rungs;
  std::vector<Rung> variants;  // of the full set
  bool keeps_all = false;      // what slows down or changes the loss too
  double seconds = 600;        // about; that it may take
};

struct Ladder {
  std::vector<LadderRow> rows;  // the first is the start
  // The full set "without" a rung of it or "with" another one; `gain` is speed over it.
  std::vector<LadderRow> switched;
  std::vector<LadderRow> variants;  // of the full set; `gain` is in tokens per second
  MeasurementLength length;
  int64_t rounds = 0;
  bool complete = false;  // not stopped by a signal
};

// Two configurations in alternating runs, so that what else the machine does meets both.
struct Comparison {
  Measurement before, after;  // medians of their runs
  double gain = 1;            // median of before.step_ms / after.step_ms over the pairs
};
std::optional<Comparison> compare(const Config& before, const Config& after, const MeasurementLength& length,
                                  int64_t rounds, const Measure& measure);

// The numbers of several runs of one configuration.
Measurement median_of(const std::vector<Measurement>& runs);

// "the loss differs by +5.0 %", or nothing where it differs by no more than rounding explains: the runs start from the same weights
// and see the same batches.
std::string difference_of_losses(const Measurement& measured, double start_loss);

// Whether a change is worth having, and why. `start_loss`: of the run without any change.
struct Judgement {
  bool kept;
  std::string reason;
};
Judgement judge(const Comparison& pair, double start_loss);

Ladder climb(const Config& wanted, const LadderPlan& plan, const Measure& measure, const Progress& progress);

Findings findings(const Ladder& ladder);

}  // namespace gpt
