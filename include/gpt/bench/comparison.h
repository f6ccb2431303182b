// Two configurations measured in turn, so that what else the machine does meets both, and what may be said of the difference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/bench/apart.h"
#include "gpt/bench/measurement.h"

namespace gpt::bench {

struct Comparison {
  Measurement before, after;  // medians of their runs
  std::vector<double> gains;  // after.tokens_per_second / before.tokens_per_second of each pair of runs
  double drift = 1;           // drift_of() the runs before

  double gain() const { return median(gains); }
};

// Pairs of runs go on until at least three agree: all faster, all slower, or all within the noise. There is at least one, there are at
// most so many, and none is begun that would probably end after so many seconds.
inline constexpr int64_t kFewestPairs = 3;
inline constexpr const char* kPairsEnd = "at least three pairs of runs agreed or the time was over";
struct Pairs {
  double seconds;
  int64_t most = 9;
};

// Measures both in turn; nothing when a signal stopped it.
std::optional<Comparison> compare(const Measured& before, const Measured& after, const Pairs& pairs,
                                  const Measure& measure);

// The numbers of several runs of one configuration.
Measurement median_of(const std::vector<Measurement>& runs);
// The speed of the fastest relative to that of the slowest.
double drift_of(const std::vector<Measurement>& runs);

// "the loss differs by +5.0 %", or nothing where it differs by no more than kLossTolerance, which rounding explains: the runs start
// from the same weights and see the same batches.
constexpr double kLossTolerance = 0.01;
std::string difference_of_losses(const Measurement& measured, double start_loss);

// What the pairs say of the speed: a median within the noise is no difference.
enum class SpeedChange { slower, none, faster };
SpeedChange change_of(const std::vector<double>& gains);
// ", though not in every pair" where some pair says the opposite of the median; otherwise empty.
std::string doubt_about(const std::vector<double>& gains);

// "cannot tell: ..." where the pairs say nothing about the speed, because there are too few, or because what both are compared with
// was itself a third faster at one time than at another; otherwise empty.
inline constexpr double kMostDrift = 4.0 / 3;
std::string why_untold(const Comparison& pair);

// Whether a change is worth having, and why. `start_loss`: of the run without any change.
struct Judgement {
  bool kept;
  std::string reason;
  bool is_told = true;  // what it does to the speed; where it cannot be told, it is kept
};
Judgement judge(const Comparison& pair, double start_loss);

}  // namespace gpt::bench
