#include "gpt/run/rate_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "gpt/core/format.h"

namespace gpt::run {
namespace {

constexpr double kLowest = 6.25e-5, kHighest = 3.2e-2;

// What the best rate of so many updates is to be multiplied by for a longer run. Of language models from 50 to 760 million parameters the
// best rate falls with about the 0.3rd power of the tokens (Bjorck et al., arXiv 2409.19913). Of small models whose trials had a warm-up as
// long as the run's it fell with powers between 0 and 0.6 (scripts/compare_learning_rates.sh).
double of_length(int64_t updates, int64_t run_steps) {
  constexpr double kPower = 0.25;
  return std::pow(static_cast<double>(updates) / static_cast<double>(std::max(run_steps, updates)), kPower);
}

// The losses of a round, one for each rate; NaN where there is none.
class Round {
 public:
  Round(size_t rates, int64_t updates) : updates_(updates), losses_(rates, std::nan("")) {}

  bool has(size_t i) const { return i < losses_.size() && !std::isnan(losses_[i]); }
  double loss(size_t i) const { return losses_[i]; }
  int64_t updates() const { return updates_; }
  void set(size_t i, double loss) { losses_[i] = std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity(); }

  // The rate with the lowest loss; nothing where none ended with a finite one.
  std::optional<size_t> best() const {
    std::optional<size_t> found;
    for (size_t i = 0; i < losses_.size(); ++i)
      if (has(i) && std::isfinite(loss(i)) && (!found || loss(i) < loss(*found))) found = i;
    return found;
  }
  size_t compared() const {
    size_t count = 0;
    for (size_t i = 0; i < losses_.size(); ++i) count += has(i);
    return count;
  }

  // How far, in steps of the grid, the lowest point of the parabola through the best loss and its neighbours lies from it: half a step at
  // most. 0 where a neighbour is missing or diverged.
  double offset() const {
    const size_t i = *best();
    if (i == 0 || !has(i - 1) || !has(i + 1)) return 0;
    const double left = loss(i - 1) - loss(i), right = loss(i + 1) - loss(i);
    if (!std::isfinite(left) || !std::isfinite(right) || left + right <= 0) return 0;
    return std::clamp(0.5 * (left - right) / (left + right), -0.5, 0.5);
  }

 private:
  int64_t updates_;
  std::vector<double> losses_;
};

class Search {
 public:
  Search(const RateSearch& search, const TryRate& try_rate, const std::function<int64_t()>& run_steps)
      : search_(search), try_rate_(try_rate), run_steps_(run_steps) {}

  std::optional<FoundRate> run() {
    std::vector<size_t> kept(search_.rates.size());
    for (size_t i = 0; i < kept.size(); ++i) kept[i] = i;
    std::optional<Round> decided;
    for (const int64_t updates : search_.lengths) {
      Round round(search_.rates.size(), updates);
      if (!compare(round, kept) || !round.best()) {
        if (!decided && round.best() && round.compared() > 1) decided = round;
        break;
      }
      decided = round;
      kept = around(*round.best());
    }
    if (!decided) return std::nullopt;
    return found(*decided);
  }

 private:
  // From low rates to high ones, and no further once one diverges. Then on where the best is at an end of those that were kept. False:
  // there was no time for all of them.
  bool compare(Round& round, const std::vector<size_t>& kept) {
    for (const size_t i : kept) {
      if (!try_one(round, i)) return false;
      if (!std::isfinite(round.loss(i))) break;
    }
    for (auto best = round.best(); best;) {
      const size_t i = *best;
      if (i > 0 && !round.has(i - 1)) {
        if (!try_one(round, i - 1)) return false;
      } else if (i + 1 < search_.rates.size() && !round.has(i + 1)) {
        if (!try_one(round, i + 1)) return false;
      } else {
        return true;
      }
      best = round.best();
    }
    return true;
  }

  bool try_one(Round& round, size_t i) {
    const std::optional<double> loss = try_rate_(search_.rates[i], round.updates());
    if (!loss) return false;
    round.set(i, *loss);
    trials_.push_back({search_.rates[i], round.updates(), round.loss(i)});
    return true;
  }

  // Longer trials favour lower rates rather than higher ones.
  std::vector<size_t> around(size_t best) const {
    std::vector<size_t> kept;
    for (size_t i = best >= 1 ? best - 1 : 0; i <= std::min(best + 1, search_.rates.size() - 1); ++i) kept.push_back(i);
    return kept;
  }

  FoundRate found(const Round& round) const {
    const size_t best = *round.best();
    const int64_t run_steps = run_steps_ ? run_steps_() : search_.run_steps;
    const double offset = round.offset(), factor = of_length(round.updates(), run_steps);
    const double rate = factor * search_.rates[best] * std::exp2(offset);
    std::string why = fmt::format("of runs of {} that at {:.3g} ended with the lowest loss, {:.4f}",
                                  plural(round.updates(), "update"), search_.rates[best], round.loss(best));
    if (offset != 0)
      why += fmt::format(", the parabola through it and its neighbours is lowest at {:.2g}", rate / factor);
    if (factor < 1) why += fmt::format(", and one of {} wants {:.2f} times that", plural(run_steps, "update"), factor);
    const bool is_first = best == 0, is_last = best + 1 == search_.rates.size();
    if (is_first || is_last)
      why += fmt::format("; no {} rate is tried, and one may be better: set training.learning_rate to see",
                         is_first ? "lower" : "higher");
    return {.rate = std::stod(fmt::format("{:.2g}", rate)),  // a number to be read and typed
            .why = why,
            .trials = trials_};
  }

  const RateSearch& search_;
  const TryRate& try_rate_;
  const std::function<int64_t()>& run_steps_;
  std::vector<Trial> trials_;
};

}  // namespace

RateSearch plan_search(double min_lr, int64_t updates, int64_t run_steps) {
  constexpr int64_t kRounds = 3, kShortest = 10;
  RateSearch search{.rates = {}, .lengths = {}, .run_steps = run_steps};
  for (double rate = kLowest; rate <= kHighest * 1.001; rate *= 2)
    if (rate >= min_lr) search.rates.push_back(rate);
  // All rates in the first round and three in each of the others, which are twice as long as the one before.
  const auto first = static_cast<int64_t>(search.rates.size());
  int64_t length = std::max(kShortest, updates / (first + 3 * 2 + 3 * 4));
  for (int64_t round = 0; round < kRounds; ++round, length *= 2) {
    if (!search.lengths.empty() && search.lengths.back() == run_steps) break;
    search.lengths.push_back(std::min(length, run_steps));
  }
  return search;
}

std::optional<FoundRate> search_rate(const RateSearch& search, const TryRate& try_rate,
                                     const std::function<int64_t()>& run_steps) {
  return Search(search, try_rate, run_steps).run();
}

}  // namespace gpt::run
