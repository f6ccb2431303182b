#include "gpt/bench/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "gpt/core/format.h"

namespace gpt::bench {
namespace {

// Differences below are noise, on a machine that does something else too.
constexpr double kNoise = 0.02;
// Memory varies by the order in which threads free it.
constexpr double kMemoryGain = 0.05;

// Whether every pair says the same.
bool agree(const std::vector<double>& gains) {
  const auto [least, most] = std::minmax_element(gains.begin(), gains.end());
  switch (change_of(gains)) {
    case SpeedChange::slower: return *most < 1;
    case SpeedChange::faster: return *least > 1;
    case SpeedChange::none: break;
  }
  return *least >= 1 - kNoise && *most <= 1 + kNoise;
}

}  // namespace

std::optional<Comparison> compare(const Measured& before, const Measured& after, const Pairs& pairs,
                                  const Measure& measure) {
  std::vector<Measurement> runs_before, runs_after;
  std::vector<double> gains;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t done = 0; done < pairs.most; ++done) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (done > 0 && passed.count() * static_cast<double>(done + 1) / static_cast<double>(done) > pairs.seconds) break;
    if (done >= kFewestPairs && agree(gains)) break;
    const auto first = measure(before.config, before.length);
    if (!first) return std::nullopt;
    const auto second = measure(after.config, after.length);
    if (!second) return std::nullopt;
    runs_before.push_back(*first), runs_after.push_back(*second);
    gains.push_back(second->tokens_per_second / first->tokens_per_second);
  }
  return Comparison{median_of(runs_before), median_of(runs_after), gains, drift_of(runs_before)};
}

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
          .start_seconds = of(&Measurement::start_seconds),
          .work = runs.back().work};
}

double drift_of(const std::vector<Measurement>& runs) {
  const auto slower = [](const Measurement& a, const Measurement& b) {
    return a.tokens_per_second < b.tokens_per_second;
  };
  const auto [least, most] = std::minmax_element(runs.begin(), runs.end(), slower);
  return most->tokens_per_second / least->tokens_per_second;
}

std::string difference_of_losses(const Measurement& measured, double start_loss) {
  const double change = (measured.loss - start_loss) / start_loss;
  return std::abs(change) <= kLossTolerance ? "" : fmt::format("the loss differs by {:+.1f} %", 100 * change);
}

SpeedChange change_of(const std::vector<double>& gains) {
  const double gain = median(gains);
  if (gain < 1 - kNoise) return SpeedChange::slower;
  return gain > 1 + kNoise ? SpeedChange::faster : SpeedChange::none;
}

std::string doubt_about(const std::vector<double>& gains) {
  return change_of(gains) == SpeedChange::none || agree(gains) ? "" : ", though not in every pair";
}

std::string why_untold(const Comparison& pair) {
  if (std::ssize(pair.gains) < kFewestPairs)
    return fmt::format("cannot tell: only {}", plural(std::ssize(pair.gains), "pair"));
  return pair.drift <= kMostDrift ? ""
                                  : fmt::format("cannot tell: the other side varied by a factor of {:.2f}", pair.drift);
}

Judgement judge(const Comparison& pair, double start_loss) {
  const std::string difference = difference_of_losses(pair.after, start_loss);
  if (!difference.empty()) return {false, difference};
  const SpeedChange change = change_of(pair.gains);
  if (const std::string untold = why_untold(pair); !untold.empty())
    return {change != SpeedChange::slower, untold, /*is_told=*/false};
  const double memory = 1 - static_cast<double>(pair.after.peak_bytes) / static_cast<double>(pair.before.peak_bytes);
  const bool saves = memory >= kMemoryGain;
  const std::string doubt = doubt_about(pair.gains);
  switch (change) {
    case SpeedChange::slower: return {false, "slower here" + doubt + (saves ? ", but smaller" : "")};
    case SpeedChange::faster: return {true, (saves ? "faster and smaller" : "faster") + doubt};
    case SpeedChange::none: break;
  }
  return {true, saves ? "smaller" : "no difference here"};
}

}  // namespace gpt::bench
