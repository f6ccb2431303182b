#include "gpt/bench/modes.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/model/compile.h"
#include "ladder_findings.h"

namespace gpt::bench {
namespace {

struct Mode {
  std::string name, settings;
  Config config;
  std::string obstacle = {};
};

// Why a mode is another one that is measured already.
std::string obstacle_of(const Config& config, const device::DeviceInfo& device) {
  if (device.device.is_cpu()) return "on a CPU every mode is default";
  const model::EffectiveMode is = model::effective_mode(config.training, config.model, device.device);
  return is.mode == config.training.execution.compile_mode ? "" : is.difference;
}

std::vector<Mode> modes_of(const Wanted& wanted, const device::DeviceInfo& device) {
  const Config base = measurable(wanted.config);
  const auto mode = [&](const char* name, CompileMode compile_mode) {
    Mode result{name, fmt::format("use_compile: true, compile_mode: {}", name), base};
    result.config.training.execution.use_compile = true;
    result.config.training.execution.compile_mode = compile_mode;
    if (compile_mode != CompileMode::standard) result.obstacle = obstacle_of(result.config, device);
    return result;
  };
  const auto [plain, also] = with_libtorchs_operators(base, wanted.written);
  Mode eager{"eager", with_changes("use_compile: false", also), plain};
  return {eager, mode("default", CompileMode::standard), mode("reduce-overhead", CompileMode::reduce_overhead),
          mode("max-autotune", CompileMode::max_autotune)};
}

class Comparisons {
 public:
  Comparisons(std::vector<Mode> modes, const Measure& measure, const Progress& progress)
      : modes_(std::move(modes)), measure_(measure), progress_(progress), runs_(modes_.size()) {}

  Modes run(const ModesEffort& effort) {
    for (const Mode& mode : modes_) {
      result_.rows.push_back(
          {.name = mode.name, .settings = mode.settings, .measurement = {}, .verdict = mode.obstacle});
    }
    if (!find_length(effort)) return std::move(result_);
    while (result_.epochs < effort.epochs && run_epoch(effort.epochs)) ++result_.epochs;
    summarize();
    result_.complete = result_.epochs == effort.epochs;
    return std::move(result_);
  }

 private:
  bool is_measured(size_t i) const { return result_.rows[i].verdict.empty(); }

  bool find_length(const ModesEffort& effort) {
    if (effort.iterations > 0) {
      result_.length = {.warm_up = 5, .updates = effort.iterations};
      return true;
    }
    progress_(0, modes_[0].name);
    const auto pace = find_pace(modes_[0].config, measure_);
    if (!pace) return false;
    int64_t runs = 0;
    for (size_t i = 0; i < modes_.size(); ++i) runs += is_measured(i) ? effort.epochs : 0;
    result_.length = length_for(*pace, effort.seconds / static_cast<double>(runs));
    return true;
  }

  // Measures each mode once, in turn with the first; false when it was stopped.
  bool run_epoch(int64_t epochs) {
    std::optional<Measurement> eager;
    for (size_t i = 0; i < modes_.size(); ++i) {
      if (!is_measured(i)) continue;
      const double share = static_cast<double>(i) / static_cast<double>(modes_.size());
      progress_((static_cast<double>(result_.epochs) + share) / static_cast<double>(epochs), modes_[i].name);
      try {
        const auto run = measure_(modes_[i].config, result_.length);
        if (!run) return false;
        if (i == 0) eager = run;
        runs_[i].emplace_back(*run, eager->step_ms / run->step_ms);
      } catch (const Error& error) {
        if (i == 0) throw;  // there is nothing to compare with
        result_.rows[i].verdict = error.what();
      }
    }
    return true;
  }

  void summarize() {
    double drift = 1;  // drift of the first mode, with which each other one took turns
    for (size_t i = 0; i < modes_.size(); ++i) {
      LadderRow& row = result_.rows[i];
      if (runs_[i].empty() || !row.verdict.empty()) continue;
      std::vector<Measurement> measured;
      std::vector<double> gains;
      for (const auto& [measurement, gain] : runs_[i]) measured.push_back(measurement), gains.push_back(gain);
      row.measurement = median_of(measured);
      if (i == 0) drift = drift_of(measured);
      row.gain = row.total_gain = median(gains);
      row.kept = true;
      if (i == 0) continue;
      row.pair_gains = gains;
      const Measurement& eager = *result_.rows[0].measurement;
      const Judgement judgement = judge({eager, *row.measurement, gains, drift}, eager.loss);
      row.kept = judgement.kept, row.verdict = judgement.reason, row.is_told = judgement.is_told;
      row.tokens_per_second_before = eager.tokens_per_second;
    }
  }

  std::vector<Mode> modes_;
  const Measure& measure_;
  const Progress& progress_;
  std::vector<std::vector<std::pair<Measurement, double>>> runs_;  // the runs of each mode, with their gains
  Modes result_;
};

}  // namespace

Modes measure_modes(const Wanted& wanted, const device::DeviceInfo& device, const ModesEffort& effort,
                    const Measure& measure, const Progress& progress) {
  return Comparisons(modes_of(wanted, device), measure, progress).run(effort);
}

Findings findings(const Modes& modes) {
  const double eager_loss = start_loss_of(modes.rows);
  Findings result{
      .text = {fmt::format(
                   "Each mode in turn, {}{}: medians of {} after {} to warm up. Differences of less than 2 % are "
                   "noise. The loss is the mean of the last updates, at most ten, and `change` its "
                   "difference from the first row's.",
                   plural(modes.epochs, "epoch"), modes.complete ? "" : " and part of another",
                   plural(modes.length.updates, "update"), modes.length.warm_up),
               ladder_table(modes.rows, "mode", /*is_ladder=*/false, eager_loss), training_time(modes.rows)},
      .json = fmt::format("{{\"epochs\": {}, \"warm_up\": {}, \"updates\": {}, \"rows\": {}}}", modes.epochs,
                          modes.length.warm_up, modes.length.updates, json_of(modes.rows, eager_loss)),
      .chart_title = kTimeChart,
      .bars = bars_of(modes.rows),
      .legend = {"at least as fast as the first", "slower, or another loss"},
      .threads = modes.rows.front().measurement->threads,
      .complete = modes.complete};
  add_settings(result.text, modes.rows, "modes");
  return result;
}

}  // namespace gpt::bench
