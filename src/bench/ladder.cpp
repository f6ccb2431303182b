#include "gpt/bench/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpt/config/load.h"
#include "gpt/core/error.h"

namespace gpt {
namespace {

// Differences below are noise, on a machine that does something else too.
constexpr double kNoise = 0.02;
// The mean loss of ten updates, which start from the same weights and see the same batches.
constexpr double kLossTolerance = 0.01;
// Memory varies by the order in which threads free it.
constexpr double kMemoryGain = 0.05;

// Climbs, and knows how far it is.
class Climb {
 public:
  Climb(const Config& wanted, const LadderPlan& plan, const Measure& measure, const Progress& progress)
      : plan_(plan), measure_(measure), progress_(progress), start_(without_rungs(wanted)) {
    for (const Rung& rung : plan_.rungs) count_ += rung.obstacle.empty() ? 2 : 0;  // on the way up, and in the full set
    count_ += count_of_variants();
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
    bool is_added;
  };

  bool find_effort() {
    progress_(0, "start");
    const auto pace = find_pace(start_, measure_);
    if (!pace) return false;
    const Effort effort = effort_for(*pace, count_, plan_.seconds);
    ladder_.length = effort.length;
    ladder_.rounds = effort.rounds;
    const auto start = measure_(start_, ladder_.length);
    if (!start) return false;
    ladder_.rows.push_back({.name = "start",
                            .settings =
                                "float32, AdamW's state too, LibTorch's operators, nothing fused, tokens loaded as "
                                "they are needed",
                            .measurement = start,
                            .kept = true,
                            .verdict = ""});
    full_ = start_, full_speed_ = start->tokens_per_second;
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
    Config above = full_;
    rung.apply(above);
    const auto pair = try_compare(full_, above, row);
    if (!pair) return !stopped_;
    const Judgement judgement = judge_rung(rung, *pair);
    row.measurement = pair->after, row.gain = pair->gain, row.total_gain = total_gain_ * pair->gain;
    row.kept = judgement.kept, row.verdict = judgement.reason;
    if (row.kept) {
      full_ = above, full_speed_ = pair->after.tokens_per_second;
      total_gain_ = row.total_gain, kept_.push_back(&rung);
    }
    return true;
  }

  Judgement judge_rung(const Rung& rung, const Comparison& pair) const {
    const auto [is_good, reason] = judge(pair, start_loss());
    if (plan_.keeps_all) return {true, reason};
    if (is_good && contains(kept_, rung.rival))
      return {false, fmt::format("left out: {}, but {} is kept", reason, rung.rival)};
    return {is_good, (is_good ? "kept: " : "left out: ") + reason};
  }

  bool switch_each() {
    std::vector<Switched> all = all_switched();
    count_ = done_ + count_of_variants();
    for (const Switched& one : all) count_ += is_full(one.config) ? 0 : 1;
    for (Switched& one : all) {
      if (is_full(one.config)) {
        one.row.verdict = "nothing changes: the others set it too";
      } else {
        const auto pair = try_compare(full_, one.config, one.row);
        if (stopped_) return false;
        if (pair) {
          one.row.measurement = pair->after, one.row.gain = pair->gain;
          one.row.verdict = verdict_on(*pair, one.is_added);
        }
      }
      ladder_.switched.push_back(std::move(one.row));
    }
    return true;
  }

  // In the order of the rungs. What could not be measured on the way up is not tried again.
  std::vector<Switched> all_switched() const {
    std::vector<Switched> result;
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
    Config config = full_;
    rung.apply(config);
    return {{.name = "with " + rung.name, .settings = rung.settings, .measurement = {}, .verdict = ""}, config, true};
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
    for (const Rung* rung : set) rung->apply(config);
    return config;
  }

  bool is_full(const Config& config) const { return config::dump(config) == config::dump(full_); }

  // On what is switched, whichever way.
  std::string verdict_on(const Comparison& pair, bool is_added) const {
    std::string difference = difference_of_losses(pair.after, start_loss());
    if (!difference.empty()) return difference;
    const double worth = is_added ? pair.gain : 1 / pair.gain;
    if (worth > 1 + kNoise) return "worth it";
    return worth < 1 - kNoise ? "costs time beside the others" : "no difference beside the others";
  }

  // Of the full set, once each.
  bool vary() {
    for (const Rung& variant : plan_.variants) {
      LadderRow row{.name = variant.name, .settings = variant.settings, .measurement = {}, .verdict = variant.obstacle};
      if (variant.obstacle.empty()) {
        Config other = full_;
        variant.apply(other);
        progress_(done(), variant.settings);
        try {
          row.measurement = measure_(other, length_for(other));
          if (!row.measurement) return false;
          row.gain = row.measurement->tokens_per_second / full_speed_;
        } catch (const Error& error) { row.verdict = error.what(); }
        ++done_;
      }
      ladder_.variants.push_back(std::move(row));
    }
    return true;
  }

  // So many updates that they take the time of one measurement or, on another device, few.
  MeasurementLength length_for(const Config& variant) const {
    if (variant.device != full_.device) return {.warm_up = 1, .updates = 3};
    const int64_t ratio = std::max<int64_t>(1, variant.training.batch_size / full_.training.batch_size);
    return {.warm_up = std::max<int64_t>(1, ladder_.length.warm_up / ratio),
            .updates = std::max<int64_t>(2, ladder_.length.updates / ratio)};
  }

  std::optional<Comparison> try_compare(const Config& before, const Config& after, LadderRow& row) {
    progress_(done(), row.name);
    ++done_;
    try {
      auto pair = compare(before, after, ladder_.length, ladder_.rounds, measure_);
      stopped_ = !pair;
      return pair;
    } catch (const Error& error) {
      row.verdict = error.what();
      return std::nullopt;
    }
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
  Config start_, full_;
  double full_speed_ = 0;  // tokens per second
  double total_gain_ = 1;  // of the full set over the start
  Set kept_;
  Ladder ladder_;
  int64_t count_ = 0, done_ = 0;  // comparisons
  bool stopped_ = false;
};

}  // namespace

Measurement median_of(const std::vector<Measurement>& runs) {
  const auto of = [&runs](auto member) {
    std::vector<double> values;
    for (const Measurement& run : runs) values.push_back(static_cast<double>(run.*member));
    return median(values);
  };
  return {.step_ms = of(&Measurement::step_ms),
          .cpu_ms = of(&Measurement::cpu_ms),
          .tokens_per_second = of(&Measurement::tokens_per_second),
          .peak_bytes = static_cast<int64_t>(of(&Measurement::peak_bytes)),
          .tensor_bytes = static_cast<int64_t>(of(&Measurement::tensor_bytes)),
          .threads = runs.back().threads,
          .loss = runs.back().loss,  // the same in each
          .start_seconds = of(&Measurement::start_seconds)};
}

std::string difference_of_losses(const Measurement& measured, double start_loss) {
  const double change = (measured.loss - start_loss) / start_loss;
  return std::abs(change) <= kLossTolerance ? "" : fmt::format("the loss differs by {:+.1f} %", 100 * change);
}

Judgement judge(const Comparison& pair, double start_loss) {
  const std::string difference = difference_of_losses(pair.after, start_loss);
  if (!difference.empty()) return {false, difference};
  const double memory = 1 - static_cast<double>(pair.after.peak_bytes) / static_cast<double>(pair.before.peak_bytes);
  const bool saves = memory >= kMemoryGain;
  if (pair.gain < 1 - kNoise) return {false, saves ? "slower here, but smaller" : "slower here"};
  if (pair.gain > 1 + kNoise) return {true, saves ? "faster and smaller" : "faster"};
  return {true, saves ? "smaller" : "no difference here"};
}

std::optional<Comparison> compare(const Config& before, const Config& after, const MeasurementLength& length,
                                  int64_t rounds, const Measure& measure) {
  std::vector<Measurement> runs_before, runs_after;
  std::vector<double> gains;
  for (int64_t round = 0; round < rounds; ++round) {
    const auto first = measure(before, length);
    if (!first) return std::nullopt;
    const auto second = measure(after, length);
    if (!second) return std::nullopt;
    runs_before.push_back(*first), runs_after.push_back(*second);
    gains.push_back(first->step_ms / second->step_ms);
  }
  return Comparison{median_of(runs_before), median_of(runs_after), median(gains)};
}

Ladder climb(const Config& wanted, const LadderPlan& plan, const Measure& measure, const Progress& progress) {
  return Climb(wanted, plan, measure, progress).run();
}

}  // namespace gpt
