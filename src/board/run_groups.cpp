#include "gpt/board/run_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "gpt/config/load.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/core/statistics.h"
#include "gpt/layout/parameter_table.h"

namespace gpt::board {
namespace {

std::string place_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
  return path.empty() || error ? path : whole.string();
}

bool differ_in_seed_alone(const Config& one, const Config& other) {
  const auto changes = config::difference(one, other);
  return std::all_of(changes.begin(), changes.end(),
                     [](const config::Change& change) { return change.key == "seed" || change.key == "output_dir"; });
}

// Runs of one configuration, whose seeds may differ.
struct Settings {
  const RunSummary* best;
  std::vector<double> values;
  std::vector<int64_t> seeds;  // of those runs: one that was made twice counts once
  double mean() const {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  std::string name() const {
    const std::string folder = printable_line(best->folder);
    return values.size() == 1 ? folder : fmt::format("{} ({})", folder, plural(std::ssize(values), "seed"));
  }
};

std::vector<Settings> settings_of(const RunGroup& group) {
  std::vector<Settings> all;
  for (const RunSummary& run : group.runs) {
    const double value = group.value_of(run);
    if (!std::isfinite(value)) continue;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Settings& known) {
      return run.config && known.best->config && differ_in_seed_alone(*known.best->config, *run.config);
    });
    const int64_t seed = run.config ? run.config->seed : 0;
    if (same == all.end()) {
      all.push_back({&run, {value}, {seed}});
    } else if (std::find(same->seeds.begin(), same->seeds.end(), seed) == same->seeds.end()) {
      same->values.push_back(value), same->seeds.push_back(seed);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Settings& a, const Settings& b) { return a.mean() < b.mean(); });
  return all;
}

// The standard deviation between seeds of the same settings, and its degrees of freedom; none where every seed is alone.
struct Spread {
  double deviation = 0;
  size_t freedom = 0;
};

Spread spread_of(const std::vector<Settings>& all) {
  double squares = 0;
  size_t freedom = 0;
  for (const Settings& settings : all) {
    for (const double value : settings.values) squares += std::pow(value - settings.mean(), 2);
    freedom += settings.values.size() - 1;
  }
  return {freedom > 0 ? std::sqrt(squares / static_cast<double>(freedom)) : 0, freedom};
}

}  // namespace

// The tokens of char and bpe:N are made from the text.
TextAndTokens text_and_tokens(const Config& config) {
  const DataConfig& data = config.data;
  return {.text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", place_of(data.text), static_cast<int>(data.dataset),
                              place_of(data.bin), place_of(data.validation_bin), data.text_field, data.max_chars,
                              data.validation_fraction),
          .tokens = fmt::format("{}\n{}", data.tokenizer, config.model.vocab_size.value_or(0))};
}

std::optional<int64_t> RunSummary::parameters() const {
  return config && config->model.vocab_size ? std::optional(layout::parameter_count(config->model)) : std::nullopt;
}

double RunGroup::value_of(const RunSummary& run) const {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto& best = run.history.best_evaluation;
  if (!best) return kNone;
  return have_same_tokens ? best->loss : best->bits_per_byte.value_or(kNone);
}

std::vector<RunGroup> grouped(std::vector<RunSummary> runs) {
  std::vector<RunGroup> groups;
  for (RunSummary& run : runs) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const RunGroup& group) {
      const auto& first = group.runs[0].config;
      return first && run.config && text_and_tokens(*first).text == text_and_tokens(*run.config).text;
    });
    RunGroup& group = same == groups.end() ? groups.emplace_back() : *same;
    if (!group.runs.empty())
      group.have_same_tokens = group.have_same_tokens &&
                               text_and_tokens(*group.runs[0].config).tokens == text_and_tokens(*run.config).tokens;
    group.runs.push_back(std::move(run));
  }
  for (RunGroup& group : groups) {
    const auto order = [&group](const RunSummary& run) {
      const double value = group.value_of(run);
      return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
    };
    std::stable_sort(group.runs.begin(), group.runs.end(),
                     [&](const RunSummary& a, const RunSummary& b) { return order(a) < order(b); });
  }
  return groups;
}

std::string verdict_on(const RunGroup& group) {
  const std::vector<Settings> all = settings_of(group);
  const Spread spread = spread_of(all);
  const char* const what = group.have_same_tokens ? "validation loss" : "bits per byte";
  if (all.empty() || (all.size() == 1 && spread.freedom == 0)) return "";
  const Settings& best = all[0];
  if (all.size() == 1) {
    return fmt::format("The runs differ in their seeds alone: {} {:.4f}, with a standard deviation of {:.4f}.", what,
                       best.mean(), spread.deviation);
  }
  const Settings& next = all[1];
  const double difference = next.mean() - best.mean();
  const std::string means = fmt::format("{:.4f} and {:.4f} {}", best.mean(), next.mean(), what);
  if (spread.freedom == 0) {
    return fmt::format(
        "{} is {:.4f} better than {} ({}). Whether that is more than chance needs runs with other seeds: --seed.",
        best.name(), difference, next.name(), means);
  }
  const double half =
      student_t(spread.freedom) * spread.deviation *
      std::sqrt(1 / static_cast<double>(best.values.size()) + 1 / static_cast<double>(next.values.size()));
  const std::string measured =
      fmt::format("{}; the difference is {:.4f} ± {:.4f} (95 %, from the spread between seeds)", means, difference,
                  half);
  return difference > half ? fmt::format("{} is better than {}: {}.", best.name(), next.name(), measured)
                           : fmt::format("{} cannot be told from {}: {}.", best.name(), next.name(), measured);
}

std::vector<std::vector<std::string>> differing_settings(const std::vector<RunSummary>& runs) {
  const auto first = std::find_if(runs.begin(), runs.end(), [](const RunSummary& run) { return run.config; });
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].config) continue;
    for (const config::Change& change : config::difference(*first->config, *runs[i].config)) {
      if (change.key == "output_dir") continue;
      auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& known) { return known[0] == change.key; });
      if (row == rows.end()) {
        row = rows.insert(rows.end(), {change.key});
        for (const RunSummary& run : runs) row->push_back(run.config ? change.before : "-");
      }
      (*row)[1 + i] = change.after;
    }
  }
  return rows;
}

}  // namespace gpt::board
