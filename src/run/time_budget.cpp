#include "gpt/run/time_budget.h"

#include <algorithm>
#include <cmath>

namespace gpt::run {
namespace {

// Shares of the time: over which the speed is a mean, after which it is looked at again, and by which the end may be missed before anything is
// corrected. The last two are less than the hundredth that people are promised. While much is left, a share of that may be missed too: what is
// wrong then is corrected later.
constexpr double kWindow = 0.1, kBetweenLooks = 0.01, kTolerance = 0.003, kToleranceOfRest = 0.03;
constexpr size_t kFewest = 3;  // updates, of which one may have been an exception

}  // namespace

double TimeBudget::pace() const { return time_of_all_ / static_cast<double>(times_.size()); }

std::optional<int64_t> TimeBudget::after_update(int64_t step, double spent, int64_t total, const Rest& rest) {
  times_.push_back(spent - updated_), time_of_all_ += times_.back(), updated_ = spent;
  while (times_.size() > kFewest && time_of_all_ - times_.front() > kWindow * seconds_)
    time_of_all_ -= times_.front(), times_.pop_front();
  const double update = pace(), left = seconds_ - spent;
  if (step < total && left - rest.closing < update / 2) return step;
  if (times_.size() < kFewest || spent < next_look_) return std::nullopt;
  next_look_ = spent + kBetweenLooks * seconds_;
  const int64_t fitting = step + updates_in(left, update, rest.all);
  const double off = update * static_cast<double>(std::abs(fitting - total));
  if (off <= std::max({kTolerance * seconds_, kToleranceOfRest * left, update})) return std::nullopt;
  return fitting;
}

int64_t updates_in(double seconds, double update_seconds, double rest) {
  constexpr double kMost = 1e12;  // as training.max_steps
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(kMost, (seconds - rest) / update_seconds)));
}

}  // namespace gpt::run
