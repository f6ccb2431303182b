#include "gpt/bench/experiments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "gpt/bench/comparison.h"
#include "gpt/bench/rung.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"

namespace gpt::bench {
namespace {

constexpr const char* kPlain = "as configured";

// A run of its own length, with the schedule that was asked for, without stages and anything beside its updates.
Config plain_run(const Config& wanted, int64_t updates) {
  Config config = wanted;
  config.training.resume_from = "none";
  config.training.cadence = {};
  config.training.cadence.eval_interval.count = 0;
  config.data.stages.clear();
  ScheduleConfig& schedule = config.training.schedule;
  schedule.epochs.reset();
  schedule.max_steps = updates;
  if (schedule.warmup_steps) schedule.warmup_steps = std::min(*schedule.warmup_steps, updates / 10);
  // Without validations on the way it is constant.
  if (schedule.lr_schedule == LrSchedule::plateau) schedule.lr_schedule = LrSchedule::constant;
  return config;
}

struct ExperimentPlan {
  LearningLength length;
  int64_t eval_batches = 1;
  double run_seconds = 0;  // what one run takes, about
};

// So that all experiments fit, but not shorter than runs in which something is learned.
ExperimentPlan plan_of_experiments(const Config& wanted, const Pace& pace, int64_t experiments, double seconds) {
  constexpr int64_t kLeastUpdates = 300, kMostUpdates = 20'000;
  constexpr double kShareOfTiming = 0.15, kShareOfEvaluations = 0.15, kUpdatesPerBatch = 3;
  ExperimentPlan plan;
  const double of_run = (1 - kShareOfTiming) * seconds / static_cast<double>(kSeeds * (experiments + 1));
  const double learning = (1 - kShareOfEvaluations) * (of_run - pace.around_seconds);
  plan.length.updates = std::clamp(static_cast<int64_t>(learning / pace.update_seconds), kLeastUpdates, kMostUpdates);
  const auto micro_batches = static_cast<double>(plan.length.updates * wanted.training.gradient_accumulation_steps);
  plan.eval_batches = std::max<int64_t>(1, static_cast<int64_t>(kShareOfEvaluations * kUpdatesPerBatch * micro_batches /
                                                                static_cast<double>(plan.length.evaluations + 1)));
  plan.run_seconds =
      pace.around_seconds + static_cast<double>(plan.length.updates) * pace.update_seconds / (1 - kShareOfEvaluations);
  return plan;
}

std::string to_json(const ExperimentPlan& plan) {
  return nlohmann::ordered_json{{"updates", plan.length.updates},
                                {"eval_batches", plan.eval_batches},
                                {"run_seconds", plan.run_seconds}}
      .dump();
}

ExperimentPlan plan_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  ExperimentPlan plan;
  plan.length.updates = json.at("updates").get<int64_t>();
  plan.eval_batches = json.at("eval_batches").get<int64_t>();
  plan.run_seconds = json.at("run_seconds").get<double>();
  return plan;
}

// The loss of `changed` minus that of `plain`, with the same seed: at the end,
Difference at_equal_tokens(const ExperimentRow& plain, const ExperimentRow& changed) {
  std::vector<double> differences;
  for (size_t i = 0; i < changed.runs.size(); ++i)
    differences.push_back(changed.runs[i].points.back().loss - plain.runs[i].points.back().loss);
  return difference_of(differences);
}

// or after the shorter of their times, where a step of `changed` takes `ratio` times as long.
Difference at_equal_time(const ExperimentRow& plain, const ExperimentRow& changed, double ratio) {
  std::vector<double> differences;
  for (size_t i = 0; i < changed.runs.size(); ++i) {
    const Learning &before = plain.runs[i], &after = changed.runs[i];
    const double steps = std::min(static_cast<double>(before.points.back().updates),  // of the plain run
                                  ratio * static_cast<double>(after.points.back().updates));
    differences.push_back(after.loss_after(steps / ratio) - before.loss_after(steps));
  }
  return difference_of(differences);
}

// The interval reaches as far as it does with any ratio that the pairs allow.
Difference at_equal_time(const ExperimentRow& plain, const ExperimentRow& changed) {
  std::vector<double> logarithms;
  for (const double ratio : changed.step_ratios) logarithms.push_back(std::log(ratio));
  const Difference ratio = difference_of(logarithms);
  Difference result = at_equal_time(plain, changed, std::exp(ratio.mean));
  if (!std::isfinite(ratio.half)) return {result.mean, ratio.half};
  const double mean = result.mean;
  for (const double end : {ratio.mean - ratio.half, ratio.mean + ratio.half}) {
    const Difference at_end = at_equal_time(plain, changed, std::exp(end));
    result.half = std::max(result.half, std::abs(at_end.mean - mean) + at_end.half);
  }
  return result;
}

double mean_loss(const ExperimentRow& row) {
  double sum = 0;
  for (const Learning& run : row.runs) sum += run.points.back().loss;
  return sum / static_cast<double>(row.runs.size());
}

std::string verdict_on(const Difference& difference, double loss) {
  constexpr double kNothing = 0.003;  // of the loss: nobody would notice
  if (!std::isfinite(difference.mean)) return "it diverges";
  if (difference.mean + difference.half < 0) return "better";
  if (difference.mean - difference.half > 0) return "worse";
  const bool is_nothing = std::abs(difference.mean) + difference.half < kNothing * loss;
  return is_nothing ? "no difference" : "cannot tell";
}

void judge_technique(const ExperimentRow& plain, ExperimentRow& row) {
  const double loss = mean_loss(plain);
  const std::string by_tokens = verdict_on(at_equal_tokens(plain, row), loss),
                    by_time = verdict_on(at_equal_time(plain, row), loss);
  row.verdict =
      by_tokens == by_time ? by_tokens : fmt::format("{} at equal tokens, {} at equal time", by_tokens, by_time);
}

// Runs and timings, from the log where it has them.
class ExperimentRuns {
 public:
  ExperimentRuns(ExperimentLog& log, const Measure& measure, const Learn& learn, const Wanted& wanted)
      : log_(log), measure_(measure), learn_(learn), wanted_(wanted) {}

  // Nothing where a signal stopped it.
  std::optional<ExperimentPlan> plan(int64_t count, double seconds) {
    if (const auto known = log_.find("plan")) return plan_ = plan_from_json(*known);
    const auto pace = find_pace(plain_run(wanted_.config, /*updates=*/1000), measure_);
    if (!pace) return std::nullopt;
    plan_ = plan_of_experiments(wanted_.config, *pace, count, seconds);
    log_.add("plan", to_json(plan_));
    return plan_;
  }

  Config plain() const {
    Config config = plain_run(wanted_.config, plan_.length.updates);
    config.training.cadence.eval_batches = plan_.eval_batches;
    return config;
  }

  Adapted with(const Experiment& experiment) const {
    return applied([&](Config& config) { experiment.apply(config, plan_.length.updates); }, plain(), wanted_.written);
  }

  std::optional<Learning> learn(const std::string& name, Config config, int64_t seed) {
    config.seed += static_cast<uint64_t>(seed);
    const std::string key = fmt::format("{}, seed {}", name, config.seed);
    if (const auto known = log_.find(key)) return learning_from_json(*known);
    auto learning = learn_(config, plan_.length);
    if (learning) log_.add(key, bench::to_json(*learning));
    return learning;
  }

  // The time of a step relative to the plain run's, from runs in turn. Where the run has stages, whose steps differ, each of them counts by its
  // share of the updates. Empty where a signal stopped it.
  std::vector<double> step_ratios(const std::string& name, const Config& plain, const Config& changed) {
    const std::string key = name + ", time of a step";
    if (const auto known = log_.find(key)) return nlohmann::json::parse(*known).at("ratios").get<std::vector<double>>();
    const double seconds = 0.3 * plan_.run_seconds;
    std::vector<double> ratios = changed.data.stages.empty() ? ratios_in_turn(plain, changed, seconds)
                                                             : ratios_of_stages(plain, changed, seconds);
    if (!ratios.empty()) log_.add(key, nlohmann::ordered_json{{"ratios", ratios}}.dump());
    return ratios;
  }

  bool is_known(const std::string& name) const {
    return log_.find(fmt::format("{}, seed {}", name, wanted_.config.seed + kSeeds - 1)).has_value();
  }

 private:
  std::vector<double> ratios_in_turn(const Config& plain, const Config& changed, double seconds) {
    const MeasurementLength length{.warm_up = 2, .updates = std::clamp<int64_t>(plan_.length.updates / 20, 5, 50)};
    const auto pair = compare({plain, length}, {changed, length}, {.seconds = seconds}, measure_);
    std::vector<double> ratios;
    if (pair)
      for (const double gain : pair->gains) ratios.push_back(1 / gain);
    return ratios;
  }

  // As many as the stage with the fewest pairs has.
  std::vector<double> ratios_of_stages(const Config& plain, const Config& changed, double seconds) {
    const std::vector<Stage>& stages = changed.data.stages;
    std::vector<double> sums;
    for (size_t i = 0; i < stages.size(); ++i) {
      const int64_t end = i + 1 < stages.size() ? stages[i + 1].from : plan_.length.updates;
      const double share = static_cast<double>(end - stages[i].from) / static_cast<double>(plan_.length.updates);
      Config alone = changed;
      alone.data.stages = {stages[i]};
      alone.data.stages.front().from = 0;
      const std::vector<double> ratios = ratios_in_turn(plain, alone, seconds / static_cast<double>(stages.size()));
      sums.resize(i == 0 ? ratios.size() : std::min(sums.size(), ratios.size()));
      for (size_t pair = 0; pair < sums.size(); ++pair) sums[pair] += share * ratios[pair];
    }
    return sums;
  }

  ExperimentLog& log_;
  const Measure& measure_;
  const Learn& learn_;
  const Wanted& wanted_;
  ExperimentPlan plan_;
};

// False where a signal stopped it.
bool fill(ExperimentRow& row, const Config& config, ExperimentRuns& runs, const std::function<void()>& done) {
  for (int64_t seed = 0; seed < kSeeds; ++seed) {
    auto learning = runs.learn(row.name, config, seed);
    if (!learning) return false;
    row.runs.push_back(std::move(*learning));
    done();
  }
  return true;
}

// False where a signal stopped it.
bool measure_row(const Experiment& experiment, const ExperimentRow& plain, ExperimentRuns& runs, ExperimentRow& row,
                 const std::function<void()>& done) {
  row.verdict = experiment.obstacle;
  if (!row.verdict.empty()) return true;
  const auto [config, also] = runs.with(experiment);
  row.settings = with_changes(row.settings, also);
  try {
    if (!fill(row, config, runs, done)) return false;
    row.step_ratios = runs.step_ratios(row.name, runs.plain(), config);
    if (row.step_ratios.empty()) return false;
    for (size_t i = 0; i < row.runs.size(); ++i) row.runs[i].step_ms = plain.runs[i].step_ms * median(row.step_ratios);
  } catch (const Error& error) {
    if (error.code() == ExitCode::interrupted) return false;
    row.runs.clear();
    row.verdict = error.what();
    return true;
  }
  judge_technique(plain, row);
  return true;
}

std::string signed_loss(const Difference& difference) {
  if (!std::isfinite(difference.half)) return fmt::format("{:+.4f} ± ?", difference.mean);
  return fmt::format("{:+.4f} ± {:.4f}", difference.mean, difference.half);
}

// "1.04 (0.97 to 1.08)"
std::string ratio_text(std::vector<double> ratios) {
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  const std::string range = fmt::format("({:.2f} to {:.2f})", *least, *most);
  return fmt::format("{:.2f} {}", median(std::move(ratios)), range);
}

Table table_of_experiments(const ExperimentComparison& comparison) {
  Table table{{{"technique", "settings", "ms/step", "relative", "tokens/s", "training", "loss", "equal tokens",
                "equal time", "verdict"}}};
  const ExperimentRow& plain = comparison.rows.front();
  for (const ExperimentRow& row : comparison.rows) {
    if (row.runs.empty()) {
      table.rows.push_back({row.name, row.settings, "-", "-", "-", "-", "-", "-", "-", row.verdict});
      continue;
    }
    const bool is_plain = &row == &plain;
    const Learning& run = row.runs.front();
    const double updates = static_cast<double>(run.points.back().updates);
    table.rows.push_back(
        {row.name, row.settings, fmt::format("{:.1f}", run.step_ms), is_plain ? "-" : ratio_text(row.step_ratios),
         format_count(1e3 * run.tokens_per_update / run.step_ms), format_short_duration(updates * run.step_ms / 1e3),
         fmt::format("{:.4f}", mean_loss(row)), is_plain ? "-" : signed_loss(at_equal_tokens(plain, row)),
         is_plain ? "-" : signed_loss(at_equal_time(plain, row)), row.verdict});
  }
  return table;
}

nlohmann::ordered_json json_of_row(const ExperimentRow& row) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const Learning& run : row.runs) runs.push_back(nlohmann::ordered_json::parse(to_json(run)));
  return {{"name", row.name},
          {"settings", row.settings},
          {"verdict", row.verdict},
          {"step_ratios", row.step_ratios},
          {"runs", std::move(runs)}};
}

}  // namespace

Difference difference_of(const std::vector<double>& differences) {
  const auto n = static_cast<double>(differences.size());
  const double mean = std::accumulate(differences.begin(), differences.end(), 0.0) / n;
  if (differences.size() < 2) return {mean, std::numeric_limits<double>::infinity()};
  double squares = 0;
  for (const double difference : differences) squares += std::pow(difference - mean, 2);
  return {mean, student_t(differences.size() - 1) * std::sqrt(squares / (n - 1) / n)};
}

ExperimentComparison compare_experiments(const Wanted& wanted, const std::vector<Experiment>& list, double seconds,
                                         ExperimentLog& log, const Measure& measure, const Learn& learn,
                                         const Progress& progress) {
  ExperimentComparison result{.rows = {},
                              .length = {},
                              .batch_size = wanted.config.training.batch_size,
                              .left_out = {}};
  ExperimentRuns runs(log, measure, learn, wanted);
  progress(0, kPlain);
  const TimeLeft time(seconds);
  const int64_t count =
      std::count_if(list.begin(), list.end(), [](const Experiment& one) { return one.obstacle.empty(); });
  const auto plan = runs.plan(count, seconds);
  if (!plan) return result;
  result.length = plan->length, result.eval_batches = plan->eval_batches;
  int64_t ended = 0;
  std::string name = kPlain;
  const auto done = [&] { progress(static_cast<double>(++ended) / static_cast<double>(kSeeds * (count + 1)), name); };
  ExperimentRow plain{.name = kPlain, .settings = "", .runs = {}, .step_ratios = {}, .verdict = ""};
  if (!fill(plain, runs.plain(), runs, done)) return result;
  result.rows.push_back(std::move(plain));
  for (const Experiment& experiment : list) {
    const bool fits = runs.is_known(experiment.name) || !experiment.obstacle.empty() ||
                      time.share(1) > static_cast<double>(kSeeds) * plan->run_seconds;
    if (!fits) {
      result.left_out.push_back(experiment.name);
      continue;
    }
    name = experiment.name;
    ExperimentRow row{
        .name = experiment.name, .settings = experiment.settings, .runs = {}, .step_ratios = {}, .verdict = ""};
    if (!measure_row(experiment, result.rows.front(), runs, row, done)) return result;
    result.rows.push_back(std::move(row));
  }
  result.complete = true;
  return result;
}

Findings findings(const ExperimentComparison& comparison) {
  const Learning& plain = comparison.rows.at(0).runs.at(0);
  const double tokens = plain.tokens_per_update * static_cast<double>(comparison.length.updates);
  Findings result{
      .text =
          {fmt::format(
               "Validation loss, of at most {}, after {} of training ({} tokens), mean of {} seeds. A run is compared with the plain "
               "one of the same seed, which sees the same tokens: at their end, and after the time in which the faster of the "
               "two was done. The difference is a mean with its 95 % interval, which tells whether it is more than the "
               "difference between seeds; below 0.3 % of the loss it is none. \"Relative\" is the time of a step beside that "
               "of the plain run: the median of runs in turn, and their range; \"training\" is the time of all updates. Where they disagree, the interval at equal time "
               "is wider. Techniques that pay off later, or in larger models, need not pay off here.",
               plural(comparison.eval_batches * comparison.batch_size, "sequence"),
               plural(comparison.length.updates, "update"), format_count(tokens), kSeeds),
           table_of_experiments(comparison)},
      .json = "",
      .chart_title = "Validation loss after the same number of tokens",
      .legend = {"better than as configured", "not better, or not told apart"},
      .threads = plain.threads,
      .complete = comparison.complete};
  if (!comparison.left_out.empty())
    result.text.push_back(
        fmt::format("Left out for want of time, which --minutes extends: {}.", fmt::join(comparison.left_out, ", ")));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ExperimentRow& row : comparison.rows) {
    list.push_back(json_of_row(row));
    if (row.runs.empty()) continue;
    const double loss = mean_loss(row);
    result.bars.push_back({row.name, fmt::format("{:.4f}", loss), loss, row.verdict.starts_with("better")});
  }
  result.json = nlohmann::ordered_json{{"updates", comparison.length.updates},
                                       {"eval_batches", comparison.eval_batches},
                                       {"experiments", list},
                                       {"left_out", comparison.left_out}}
                    .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return result;
}

}  // namespace gpt::bench
