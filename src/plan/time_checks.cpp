#include "gpt/plan/time_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "gpt/core/format.h"
#include "gpt/plan/model_checks.h"
#include "gpt/run/evaluator.h"
#include "gpt/run/forecast.h"

namespace gpt::plan {
namespace {

std::tm local_time(std::time_t time) {
  std::tm result{};
  localtime_r(&time, &result);
  return result;
}

std::string written(const std::tm& time, const char* format) {
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &time)};
}

std::time_t in(double seconds) {
  constexpr double kMost = 100 * 365.25 * 86400;
  return std::time(nullptr) + static_cast<std::time_t>(std::min(seconds, kMost));
}

// "at 14:05" today, otherwise "on Tue 24 Nov at 14:05".
std::string local_time_in(double seconds) {
  const std::tm today = local_time(std::time(nullptr)), day = local_time(in(seconds));
  const bool is_today = today.tm_yday == day.tm_yday && today.tm_year == day.tm_year;
  return written(day, is_today ? "at %H:%M" : today.tm_year == day.tm_year ? "on %a %d %b at %H:%M" : "on %d %b %Y");
}

// An amount of money or units: 0.0123, 1.68, 104.8, 12,345.
std::string amount(double value) {
  if (value < 0.995) return format_number(value);
  if (value < 1000) return fmt::format("{:.{}f}", value, value < 99.995 ? 2 : 1);
  return with_commas(std::llround(value));
}

// The next amount above that anybody would write: 105 for 104.8, 1.69 for 1.681.
double rounded_up(double value) { return value < 10 ? std::ceil(100 * value) / 100 : std::ceil(value); }

}  // namespace

int64_t tokens_per_step(const UpdateConfig& config) {
  return config.training.batch_size * config.training.gradient_accumulation_steps * config.sequence_length();
}

StepTime step_time(const Trial& trial, const UpdateConfig& config) {
  std::string source = fmt::format("in a trial of {}", plural(trial.updates, "update"));
  if (trial.batch_size < config.training.batch_size)
    source += fmt::format(" with {} at a time", plural(trial.batch_size, "sequence"));
  return {trial.step_seconds, tokens_per_step(config), std::move(source), trial.update_seconds};
}

TimeLeft time_left(const UpdateConfig& config, const run::Plan& plan, int64_t steps_done, double step_seconds,
                   int64_t validation_tokens) {
  const TrainingConfig& training = config.training;
  const int64_t block_size = config.sequence_length();
  run::Forecast forecast(plan, run::evaluation_steps(training, block_size,
                                                     run::evaluation_tokens(training, block_size, validation_tokens)));
  forecast.took(run::Forecast::kStep, step_seconds);
  return {steps_done, plan.total_steps - steps_done, forecast.remaining_seconds(steps_done)};
}

Check check_time(const UpdateConfig& config, const run::Plan& plan, int64_t steps_done,
                 const std::optional<StepTime>& step, int64_t validation_tokens) {
  constexpr double kDay = 86400;
  if (!step) {
    return warned("time", "not measured: one sequence alone would take half a minute, or does not fit into memory",
                  kShorterRun);
  }
  const TimeLeft left = time_left(config, plan, steps_done, step->seconds, validation_tokens);
  const double epoch_seconds = step->seconds * static_cast<double>(plan.steps_per_epoch);
  const double tokens_per_second = static_cast<double>(step->tokens) / step->seconds;
  std::string detail = step->tokens > 0 ? format_count(tokens_per_second) + " tokens/s and " : "";
  detail += fmt::format("{} a step {}", format_short_duration(step->seconds), step->source);
  if (plan.total_steps > plan.steps_per_epoch) detail += fmt::format("; {} an epoch", format_duration(epoch_seconds));
  const std::string end = local_time_in(left.seconds);
  detail += fmt::format("; {} for {}{}, done {} if it starts now", format_duration(left.seconds),
                        steps_done > 0 ? fmt::format("the last {}", plural(left.steps, "step"))
                                       : plural(plan.total_steps, "step"),
                        validation_tokens > 0 ? " with validation" : "", end);
  Check check = left.seconds > kDay ? warned("time", detail, kShorterRun) : passed("time", detail);
  check.values = {{"seconds_per_step", step->seconds}, {"seconds_per_epoch", epoch_seconds},
                  {"steps_done", left.steps_done},     {"steps_left", left.steps},
                  {"seconds_left", left.seconds},      {"done_at", written(local_time(in(left.seconds)), "%FT%T%z")}};
  if (step->tokens > 0) check.values.emplace_back("tokens_per_second", tokens_per_second);
  check.answer = {"How long?", fmt::format("{}, done {} if it starts now", format_duration(left.seconds), end)};
  return check;
}

Check check_cost(const Pricing& pricing, const TimeLeft& left) {
  const double hours = left.seconds / 3600, cost = hours * pricing.per_hour;
  const std::string noun = pricing.noun.empty() ? "" : " " + pricing.noun;
  std::string detail =
      fmt::format("{} hours at {}{} an hour: {}{}", amount(hours), pricing.per_hour, noun, amount(cost), noun);
  Check check = passed("cost", detail);
  check.answer = {"How much?", amount(cost) + noun};
  if (pricing.budget) {
    const double budget = *pricing.budget;
    const bool is_enough = cost <= budget;
    if (is_enough) {
      check.detail += fmt::format("; the budget of {} is enough and leaves {}", budget, amount(budget - cost));
    } else {
      // The time of validation is spread over the steps.
      const auto paid_for = static_cast<int64_t>(budget / cost * static_cast<double>(left.steps));
      const std::string fix =
          paid_for > 0 ? fmt::format(", or set training.max_steps: {}", left.steps_done + paid_for) : "";
      check = failed("cost",
                     fmt::format("{}; the budget of {} is not enough: it pays for {} of {}", detail, budget,
                                 with_commas(paid_for), plural(left.steps, "step")),
                     fmt::format("{}{} would be enough{}", rounded_up(cost), noun, fix));
      check.values = {{"enough_would_be", rounded_up(cost)}, {"steps_paid_for", paid_for}};
    }
    check.values.emplace_back("budget", budget);
    check.values.emplace_back("enough", is_enough);
    check.answer = {"How much?",
                    fmt::format("{}{} of {}: {}", amount(cost), noun, budget, is_enough ? "enough" : "not enough")};
  }
  check.values.emplace_back("hours", hours);
  check.values.emplace_back("per_hour", pricing.per_hour);
  check.values.emplace_back("cost", cost);
  return check;
}

}  // namespace gpt::plan
