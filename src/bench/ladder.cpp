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
  Climb(const Config& wanted, const std::vector<Rung>& rungs, const std::vector<Rung>& variants, const Measure& measure,
        const Progress& progress)
      : rungs_(rungs), variants_(variants), measure_(measure), progress_(progress), start_(without_rungs(wanted)) {
    for (const Rung& rung : rungs_) count_ += rung.obstacle.empty() ? 2 : 0;  // switched on, and off again
    for (const Rung& variant : variants_) count_ += variant.obstacle.empty() ? 1 : 0;
  }

  Ladder run(double seconds) {
    if (find_effort(seconds) && go_up() && take_away() && vary()) ladder_.complete = true;
    return std::move(ladder_);
  }

 private:
  bool find_effort(double seconds) {
    progress_(0, "start");
    const auto pace = find_pace(start_, measure_);
    if (!pace) return false;
    const Effort effort = effort_for(*pace, count_, seconds);
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
    return true;
  }

  // False when it was stopped.
  bool go_up() {
    full_ = start_;
    full_speed_ = ladder_.rows.front().measurement->tokens_per_second;
    double total = 1;
    for (const Rung& rung : rungs_) {
      LadderRow row{.name = rung.name, .settings = rung.settings, .measurement = {}, .verdict = rung.obstacle};
      if (rung.obstacle.empty()) {
        Config above = full_;
        rung.apply(above);
        const auto pair = try_compare(full_, above, row);
        if (stopped_) return false;
        if (pair) {
          const Judgement judgement = judge(*pair, ladder_.rows.front().measurement->loss);
          row.measurement = pair->after, row.gain = pair->gain, row.total_gain = total * pair->gain;
          row.kept = judgement.kept;
          row.verdict = (row.kept ? "kept: " : "left out: ") + judgement.reason;
          if (row.kept) {
            full_ = above, full_speed_ = pair->after.tokens_per_second;
            total *= pair->gain, kept_.push_back(&rung);
          }
        }
      }
      ladder_.rows.push_back(std::move(row));
    }
    return true;
  }

  bool take_away() {
    for (const Rung* rung : kept_) {
      Config below = start_;
      for (const Rung* other : kept_) {
        if (other != rung) other->apply(below);
      }
      LadderRow row{.name = rung->name, .settings = rung->settings, .measurement = {}, .verdict = ""};
      if (config::dump(below) == config::dump(full_)) {  // a later one sets the same
        row.verdict = "nothing changes";
        ++done_;
        ladder_.removed.push_back(std::move(row));
        continue;
      }
      const auto pair = try_compare(full_, below, row);
      if (stopped_) return false;
      if (pair) {
        row.measurement = pair->after, row.gain = pair->gain;
        row.verdict = row.gain < 1 - kNoise   ? "worth it"
                      : row.gain > 1 + kNoise ? "costs time beside the others"
                                              : "no difference beside the others";
      }
      ladder_.removed.push_back(std::move(row));
    }
    return true;
  }

  // Of the full set, once each.
  bool vary() {
    for (const Rung& variant : variants_) {
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

  double done() const { return static_cast<double>(done_) / static_cast<double>(count_); }

  const std::vector<Rung>&rungs_, &variants_;
  const Measure& measure_;
  const Progress& progress_;
  Config start_, full_;
  double full_speed_ = 0;  // tokens per second
  std::vector<const Rung*> kept_;
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

Ladder climb(const Config& wanted, const std::vector<Rung>& rungs, const std::vector<Rung>& variants, double seconds,
             const Measure& measure, const Progress& progress) {
  return Climb(wanted, rungs, variants, measure, progress).run(seconds);
}

}  // namespace gpt
