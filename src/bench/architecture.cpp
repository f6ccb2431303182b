#include "gpt/bench/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "gpt/bench/comparison.h"
#include "gpt/bench/rung.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"

namespace gpt::bench {
namespace {

struct NamedChange {
  std::string name;
  std::function<void(Config& config)> apply;
};

// Every choice that `wanted` does not make itself, one at a time.
std::vector<NamedChange> changes_of(const Config& wanted) {
  constexpr double kSmoothing = 0.1;
  const ModelConfig& model = wanted.model;
  std::vector<NamedChange> changes{{"as configured", [](Config&) {}},
                                   {"another seed", [](Config& config) { ++config.seed; }}};
  for (const auto& [mlp, name] :
       {std::pair{Mlp::swiglu, "swiglu"}, {Mlp::geglu, "geglu"}, {Mlp::gelu, "gelu"}, {Mlp::relu2, "relu2"}}) {
    if (mlp == model.mlp) continue;
    changes.push_back({fmt::format("mlp: {}", name), [mlp](Config& config) { config.model.mlp = mlp; }});
  }
  const Norm norm = model.norm == Norm::layernorm ? Norm::rmsnorm : Norm::layernorm;
  changes.push_back({norm == Norm::layernorm ? "norm: layernorm" : "norm: rmsnorm",
                     [norm](Config& config) { config.model.norm = norm; }});
  const Position position = model.position == Position::rope ? Position::learned : Position::rope;
  changes.push_back({position == Position::rope ? "position: rope" : "position: learned",
                     [position](Config& config) { config.model.position = position; }});
  const double smoothing = wanted.training.label_smoothing > 0 ? 0 : kSmoothing;
  changes.push_back({fmt::format("label_smoothing: {}", smoothing),
                     [smoothing](Config& config) { config.training.label_smoothing = smoothing; }});
  return changes;
}

// Two runs that differ by their seed alone differ by this; one pair says little, so that at least a share of the loss counts.
double spread_of(const ArchitectureComparison& comparison, double updates) {
  constexpr double kLeast = 0.003;
  const Learning &base = *comparison.variants[0].learning, &other = *comparison.variants[1].learning;
  const double loss = base.loss_after(updates);
  return std::max(kLeast * loss, std::abs(other.loss_after(updates) - loss));
}

double milliseconds(const Learning& learning) {
  return learning.step_ms * static_cast<double>(learning.points.back().updates);
}

// The time of the fastest variant, which every other one has learned for too.
double shortest_ms(const ArchitectureComparison& comparison) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const Variant& variant : comparison.variants) {
    if (variant.learning) shortest = std::min(shortest, milliseconds(*variant.learning));
  }
  return shortest;
}

double loss_after_ms(const Learning& learning, double ms) { return learning.loss_after(ms / learning.step_ms); }

double final_loss(const Learning& learning) { return learning.points.back().loss; }

const char* verdict_of(double change, double spread) {
  if (change < -spread) return "better";
  return change > spread ? "worse" : "no difference";
}

void judge(ArchitectureComparison& comparison) {
  if (comparison.variants.size() < 2 || !comparison.variants[0].learning || !comparison.variants[1].learning) return;
  const Learning& base = *comparison.variants[0].learning;
  const double ms = shortest_ms(comparison);
  const double at_tokens = spread_of(comparison, static_cast<double>(base.points.back().updates)),
               at_time = spread_of(comparison, ms / base.step_ms);
  for (size_t i = 2; i < comparison.variants.size(); ++i) {
    Variant& variant = comparison.variants[i];
    if (!variant.learning) continue;
    const std::string by_tokens = verdict_of(final_loss(*variant.learning) - final_loss(base), at_tokens),
                      by_time = verdict_of(loss_after_ms(*variant.learning, ms) - loss_after_ms(base, ms), at_time);
    variant.verdict =
        by_tokens == by_time ? by_tokens : fmt::format("{} at equal tokens, {} at equal time", by_tokens, by_time);
  }
}

Table table_of(const ArchitectureComparison& comparison) {
  Table table{{{"variant", "parameters", "ms/step", "equal tokens", "change", "equal time", "change", "verdict"}}};
  const double ms = shortest_ms(comparison);
  const auto change = [](double value) { return fmt::format("{:+.4f}", value); };
  for (const Variant& variant : comparison.variants) {
    if (!variant.learning) {
      table.rows.push_back({variant.name, "-", "-", "-", "-", "-", "-", variant.verdict});
      continue;
    }
    const Learning &learning = *variant.learning, &base = *comparison.variants[0].learning;
    const double last = final_loss(learning), timed = loss_after_ms(learning, ms);
    table.rows.push_back({variant.name, format_count(static_cast<double>(learning.parameters)),
                          fmt::format("{:.1f}", learning.step_ms), fmt::format("{:.4f}", last),
                          change(last - final_loss(base)), fmt::format("{:.4f}", timed),
                          change(timed - loss_after_ms(base, ms)), variant.verdict});
  }
  return table;
}

// What is done for each variant.
struct Plan {
  LearningLength length;
  int64_t eval_batches;
  MeasurementLength timed;
  Pairs pairs;
};

// So that it takes about `seconds`.
Plan plan_of(const Config& base, const Pace& pace, double seconds) {
  constexpr int64_t kLeastUpdates = 8, kMostUpdates = 20'000;
  constexpr double kShareOfTiming = 0.2, kShareOfEvaluations = 0.2,
                   kUpdatesPerBatch = 3;  // an update computes three times what an evaluation does
  Plan plan{.length = {}, .eval_batches = 1, .timed = {}, .pairs = {kShareOfTiming * seconds}};
  plan.timed = effort_for(pace, /*count=*/1, plan.pairs.seconds).length;
  const double learning = (1 - kShareOfTiming) * seconds - pace.around_seconds;
  plan.length.updates = std::clamp(static_cast<int64_t>((1 - kShareOfEvaluations) * learning / pace.update_seconds),
                                   kLeastUpdates, kMostUpdates);
  const auto micro_batches = static_cast<double>(plan.length.updates * base.training.gradient_accumulation_steps);
  plan.eval_batches = std::max<int64_t>(1, static_cast<int64_t>(kShareOfEvaluations * kUpdatesPerBatch * micro_batches /
                                                                static_cast<double>(plan.length.evaluations + 1)));
  return plan;
}

}  // namespace

ArchitectureComparison compare_architectures(const Wanted& wanted, double seconds, const Measure& measure,
                                             const Learn& learn, const Progress& progress) {
  ArchitectureComparison result{.variants = {}, .length = {}, .batch_size = wanted.config.training.batch_size};
  const Config base = measurable(wanted.config);
  progress(0, "as configured");
  const auto pace = find_pace(base, measure);
  if (!pace) return result;
  const std::vector<NamedChange> changes = changes_of(base);
  const Plan plan = plan_of(base, *pace, seconds / static_cast<double>(changes.size()));
  result.length = plan.length, result.eval_batches = plan.eval_batches;
  // The second differs from the first by its seed alone; each other one takes turns with the first.
  const auto time_step = [&](const Config& config) -> std::optional<double> {
    const double first = result.variants[0].learning->step_ms;
    if (result.variants.size() == 1) return first;
    const auto pair = compare({base, plan.timed}, {config, plan.timed}, plan.pairs, measure);
    return pair ? std::optional(first / pair->gain()) : std::nullopt;
  };
  for (const NamedChange& change : changes) {
    progress(static_cast<double>(result.variants.size()) / static_cast<double>(changes.size()), change.name);
    auto [config, also] = applied(change.apply, base, wanted.written);
    config.training.cadence.eval_batches = result.eval_batches;
    Variant variant{.name = with_changes(change.name, also), .learning = {}, .verdict = ""};
    try {
      auto learning = learn(config, result.length);
      if (!learning) break;
      if (!result.variants.empty()) {
        const auto step_ms = time_step(config);
        if (!step_ms) break;
        learning->step_ms = *step_ms;
      }
      variant.learning = std::move(learning);
    } catch (const Error& error) {
      if (result.variants.size() < 2) throw;  // there is nothing to compare with
      variant.verdict = error.what();
    }
    result.variants.push_back(std::move(variant));
  }
  result.complete = result.variants.size() == changes.size();
  judge(result);
  return result;
}

Findings findings(const ArchitectureComparison& comparison) {
  const Learning& base = *comparison.variants.at(0).learning;
  const double tokens = base.tokens_per_update * static_cast<double>(comparison.length.updates);
  Findings result{
      .text =
          {fmt::format(
               "Validation loss, of at most {}, after {} of training ({} tokens), and after {}, the time in which the fastest variant "
               "has made them. Every variant but another seed sees the same batches, "
               "at the same learning rate, which stays constant after ten updates; its step was timed in turn with the "
               "first one's. What lies within the spread of "
               "the two seeds, or within 0.3 % of the loss, is no difference. Differences of a short training need not last.",
               plural(comparison.eval_batches * comparison.batch_size, "sequence"),
               plural(comparison.length.updates, "update"), format_count(tokens),
               format_duration(shortest_ms(comparison) / 1000)),
           table_of(comparison)},
      .json = "",
      .chart_title = "Validation loss after the same number of tokens",
      .legend = {"better than as configured", "not better, or not told apart"},
      .threads = base.threads,
      .complete = comparison.complete};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Variant& variant : comparison.variants) {
    list.push_back({{"name", variant.name},
                    {"verdict", variant.verdict},
                    {"learning", variant.learning ? nlohmann::ordered_json::parse(to_json(*variant.learning))
                                                  : nlohmann::ordered_json()}});
    if (!variant.learning) continue;
    const double loss = final_loss(*variant.learning);
    result.bars.push_back({variant.name, fmt::format("{:.4f}", loss), loss, variant.verdict.starts_with("better")});
  }
  result.json = nlohmann::ordered_json{{"updates", comparison.length.updates},
                                       {"eval_batches", comparison.eval_batches},
                                       {"equal_time_ms", shortest_ms(comparison)},
                                       {"variants", list}}
                    .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return result;
}

}  // namespace gpt::bench
