#include "gpt/bench/ladder.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"

namespace gpt::bench {
namespace {

// Climbs, and knows how far it is.
class Climb {
 public:
  Climb(const Wanted& wanted, const LadderPlan& plan, const Measure& measure, const Progress& progress)
      : plan_(plan),
        measure_(measure),
        progress_(progress),
        written_(wanted.written),
        adapted_start_(without_rungs(wanted)) {
    for (const Rung& rung : plan_.rungs) count_ += rung.obstacle.empty() ? 2 : 0;  // on the way up, and in the full set
    count_ += 1 + count_of_variants();                                             // and the start beside the full set
  }

  Ladder run() {
    if (find_effort() && go_up() && switch_each() && vary()) ladder_.complete = true;
    return std::move(ladder_);
  }

 private:
  using Set = std::vector<const Rung*>;

  // The full set with something switched on or off.
  struct Switched {
    LadderRow row;
    Config config;
    bool is_added = false, is_start = false;
  };

  bool find_effort() {
    progress_(0, "start");
    const auto pace = find_pace(start_, measure_);
    if (!pace) return false;
    ladder_.length = effort_for(*pace, count_, plan_.seconds).length;
    const auto start = measure_(start_, ladder_.length);
    if (!start) return false;
    ladder_.rows.push_back({.name = "start",
                            .settings = with_changes("float32, AdamW's state too, LibTorch's operators, nothing fused, "
                                                     "tokens loaded as they are needed",
                                                     adapted_start_.also),
                            .measurement = start,
                            .kept = true,
                            .verdict = ""});
    find_limit(start_, ladder_.rows.back());
    full_ = start_;
    return true;
  }

  // False when it was stopped.
  bool go_up() {
    for (const Rung& rung : plan_.rungs) {
      LadderRow row{.name = rung.name, .settings = rung.settings, .measurement = {}, .verdict = rung.obstacle};
      if (rung.obstacle.empty() && !try_rung(rung, row)) return false;
      ladder_.rows.push_back(std::move(row));
    }
    return true;
  }

  bool try_rung(const Rung& rung, LadderRow& row) {
    if (const auto missing = missing_needs(rung, kept_); !missing.empty()) {
      row.verdict = fmt::format("does nothing without {}", in_words(missing));
      return true;
    }
    const auto [above, also] = applied(rung.apply, full_, written_);
    row.settings = with_changes(row.settings, also);
    const auto pair = try_compare(full_, above, row, row.name);
    if (!pair) return !stopped_;
    const Judgement judgement = judge_rung(rung, *pair);
    row.total_gain = judgement.is_told ? total_gain_ * row.gain : total_gain_;
    row.kept = judgement.kept, row.verdict = judgement.reason, row.is_told = judgement.is_told;
    if (row.kept) {
      full_ = above, total_gain_ = row.total_gain;
      kept_.push_back(&rung);
    }
    return true;
  }

  Judgement judge_rung(const Rung& rung, const Comparison& pair) const {
    const auto [is_good, reason, is_told] = judge(pair, start_loss());
    if (plan_.keeps_all) return {true, reason, is_told};
    if (is_good && contains(kept_, rung.rival))
      return {false, fmt::format("left out: {}, but {} is kept", reason, rung.rival), is_told};
    return {is_good, (is_good ? "kept: " : "left out: ") + reason, is_told};
  }

  bool switch_each() {
    std::vector<Switched> all = all_switched();
    count_ = done_ + count_of_variants();
    for (const Switched& one : all) count_ += is_full(one.config) ? 0 : 1;
    for (Switched& one : all) {
      if (is_full(one.config)) {
        one.row.verdict = "nothing changes: the others set it too";
      } else {
        const auto pair = try_compare(full_, one.config, one.row, one.row.name);
        if (stopped_) return false;
        if (pair) one.row.verdict = one.is_start ? verdict_on_all(*pair) : verdict_on(*pair, one.is_added);
      }
      ladder_.switched.push_back(std::move(one.row));
    }
    return true;
  }

  // The start, then the rungs in their order. What could not be measured on the way up is not tried again.
  std::vector<Switched> all_switched() const {
    std::vector<Switched> result;
    if (!is_full(start_)) {
      result.push_back({{.name = "start", .settings = "nothing of the full set", .measurement = {}, .verdict = ""},
                        start_,
                        /*is_added=*/false,
                        /*is_start=*/true});
    }
    for (size_t i = 0; i < plan_.rungs.size(); ++i) {
      const Rung& rung = plan_.rungs[i];
      const LadderRow& row = ladder_.rows[i + 1];
      if (!row.measurement) continue;
      Switched one = row.kept ? without(rung) : with(rung);
      const auto is_same = [&one](const Switched& other) { return other.row.name == one.row.name; };
      if (std::none_of(result.begin(), result.end(), is_same)) result.push_back(std::move(one));
    }
    return result;
  }

  Switched with(const Rung& rung) const {
    const auto [config, also] = applied(rung.apply, full_, written_);
    return {
        {.name = "with " + rung.name, .settings = with_changes(rung.settings, also), .measurement = {}, .verdict = ""},
        config,
        true};
  }

  // And without what needs it; without its whole group where another one of that would set the same.
  Switched without(const Rung& rung) const {
    Set rest = rest_without([&rung](const Rung& other) { return &other == &rung; });
    if (is_full(config_of(rest)) && !rung.group.empty())
      rest = rest_without([&rung](const Rung& other) { return other.group == rung.group; });
    std::string names, settings;
    for (const Rung* other : kept_) {
      if (std::find(rest.begin(), rest.end(), other) != rest.end()) continue;
      names += (names.empty() ? "without " : "+") + other->name;
      settings += (settings.empty() ? "" : "; ") + other->settings;
    }
    return {{.name = names, .settings = settings, .measurement = {}, .verdict = ""}, config_of(rest), false};
  }

  template <typename IsTaken>
  Set rest_without(const IsTaken& is_taken) const {
    Set rest;
    for (const Rung* rung : kept_) {
      if (!is_taken(*rung) && missing_needs(*rung, rest).empty()) rest.push_back(rung);
    }
    return rest;
  }

  Config config_of(const Set& set) const {
    Config config = start_;
    for (const Rung* rung : set) config = applied(rung->apply, config, written_).config;
    return config;
  }

  bool is_full(const Config& config) const { return config::dump(config) == config::dump(full_); }

  // On what is switched, whichever way.
  std::string verdict_on(const Comparison& pair, bool is_added) const {
    std::string difference = difference_of_losses(pair.after, start_loss());
    if (!difference.empty()) return difference;
    if (const std::string untold = why_untold(pair); !untold.empty()) return untold;
    const SpeedChange change = change_of(pair.gains);
    if (change == SpeedChange::none) return "no difference beside the others";
    const bool is_worth_it = (change == SpeedChange::faster) == is_added;
    return (is_worth_it ? "worth it" : "costs time beside the others") + doubt_about(pair.gains);
  }

  // On the start, beside the full set: the gains of the rungs together, which their product only estimates.
  std::string verdict_on_all(const Comparison& pair) const {
    const std::string difference = difference_of_losses(pair.before, start_loss());
    if (const std::string untold = why_untold(pair); !untold.empty()) return untold;
    const double at_first = ladder_.rows.front().measurement->step_ms, now = pair.after.step_ms;
    if (std::max(at_first / now, now / at_first) > kMostDrift)
      return fmt::format("cannot tell: the start took {:.1f} ms at first and {:.1f} ms now", at_first, now);
    return fmt::format("the full set is {} as fast{}", as_ratio(1 / pair.gain()),
                       difference.empty() ? "" : ", but " + difference);
  }

  bool vary() {
    for (const Rung& variant : plan_.variants) {
      LadderRow row{.name = variant.name, .settings = variant.settings, .measurement = {}, .verdict = variant.obstacle};
      if (variant.obstacle.empty()) {
        const auto [other, also] = applied(variant.apply, full_, written_);
        row.settings = with_changes(row.settings, also);
        (void)try_compare(full_, other, row, variant.settings);
        if (stopped_) return false;
      }
      ladder_.variants.push_back(std::move(row));
    }
    return true;
  }

  // So many updates that they take the time of those of the full set or, on another device, few.
  MeasurementLength length_for(const Config& variant) const {
    if (variant.device != full_.device) return {.warm_up = 1, .updates = 3};
    const int64_t ratio = std::max<int64_t>(1, variant.training.batch_size / full_.training.batch_size);
    return {.warm_up = std::max<int64_t>(1, ladder_.length.warm_up / ratio),
            .updates = std::max<int64_t>(2, ladder_.length.updates / ratio)};
  }

  std::optional<Comparison> try_compare(const Config& before, const Config& after, LadderRow& row,
                                        const std::string& what) {
    progress_(done(), what);
    const Pairs pairs{time_left_.share(count_ - done_)};
    ++done_;
    try {
      auto pair = compare({before, ladder_.length}, {after, length_for(after)}, pairs, measure_);
      stopped_ = !pair;
      if (pair) row.take(*pair), find_limit(after, row);
      return pair;
    } catch (const Error& error) {
      row.verdict = error.what();
      return std::nullopt;
    }
  }

  void find_limit(const Config& config, LadderRow& row) const {
    if (!plan_.speed_of || row.measurement->work.empty()) return;
    if (const auto speed = plan_.speed_of(config)) row.least_ms = 1000 * least_seconds(row.measurement->work, *speed);
  }

  int64_t count_of_variants() const {
    return std::count_if(plan_.variants.begin(), plan_.variants.end(),
                         [](const Rung& variant) { return variant.obstacle.empty(); });
  }

  double start_loss() const { return ladder_.rows.front().measurement->loss; }
  double done() const { return static_cast<double>(done_) / static_cast<double>(count_); }

  const LadderPlan& plan_;
  const Measure& measure_;
  const Progress& progress_;
  const TimeLeft time_left_{plan_.seconds};
  const config::Origins& written_;
  const Adapted adapted_start_;
  const Config& start_ = adapted_start_.config;
  Config full_;
  double total_gain_ = 1;  // the gain of the full set over the start
  Set kept_;
  Ladder ladder_;
  int64_t count_ = 0, done_ = 0;  // comparisons
  bool stopped_ = false;
};

}  // namespace

Ladder climb(const Wanted& wanted, const LadderPlan& plan, const Measure& measure, const Progress& progress) {
  return Climb(wanted, plan, measure, progress).run();
}

}  // namespace gpt::bench
