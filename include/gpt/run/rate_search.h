// Which learning rate a run should have: short runs at rates that are a factor of two apart, first many and very short ones, then fewer and
// longer ones around the best (successive halving). Each is a small copy of the run: its warm-up, up to half of the trial, then its way down
// to min_lr. So rates are told apart by what they lead to. A range test, whose rate rises with every update, tells instead from where on
// AdamW diverges, which a warm-up moves; of a trial whose warm-up is a tenth of it, the best rate is several times that of a long run. What
// remains of that is made up for by a power of the two lengths.
//
// Here is the search alone, over a function that makes the trials; find_rate.h has that function.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpt::run {

struct Trial {
  double rate = 0;
  int64_t updates = 0;
  double loss = 0;  // at its end, in nats; infinite where it diverged
};

struct RateSearch {
  std::vector<double> rates;     // ascending, each twice the one before
  std::vector<int64_t> lengths;  // of the trials of each round, ascending
  int64_t run_steps = 0;         // the updates of the run, as far as they are known beforehand
};

// The rounds that fit into `updates` in all, at rates from 6e-5, or `min_lr` where that is more, to 3e-2. No trial is longer than the run.
RateSearch plan_search(double min_lr, int64_t updates, int64_t run_steps);

struct FoundRate {
  double rate = 0;
  std::string why;            // "of runs of 222 updates that at 0.002 ended with the lowest loss, 2.4664"
  std::vector<Trial> trials;  // in the order in which they were made
};

// The loss at the end of a trial; nothing: there is no time for it, and the search ends with what it has.
using TryRate = std::function<std::optional<double>(double rate, int64_t updates)>;

// Nothing where no two rates could be compared. `run_steps`: the updates of the run, asked once after the trials, which
// may tell them; null: those of the search.
std::optional<FoundRate> search_rate(const RateSearch& search, const TryRate& try_rate,
                                     const std::function<int64_t()>& run_steps = nullptr);

}  // namespace gpt::run
