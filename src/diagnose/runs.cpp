#include "gpt/diagnose/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "gpt/config/output_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/core/text_table.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/report/loss_curve.h"
#include "gpt/run/folder.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

void require_run(const std::string& folder) {
  std::error_code ignored;
  if (fs::exists(fs::path(folder) / kMetricsFile, ignored)) return;
  const char* what = !fs::exists(folder, ignored)         ? "there is no such folder"
                     : !fs::is_directory(folder, ignored) ? "it is not a folder"
                                                          : "it holds no metrics.jsonl";
  throw Error(ExitCode::config,
              fmt::format("--run: {}: {}; name the output_dir of a run, such as models/NAME", folder, what));
}

// What the tokens of a run are, as far as its configuration says. Those of char and bpe:N are made from the data.
std::string tokens_of(const Config& config) {
  const DataConfig& data = config.data;
  const bool are_made = data.tokenizer == "char" || data.tokenizer.starts_with("bpe:") || !data.bin.empty();
  return fmt::format("{}\n{}\n{}", data.tokenizer, config.model.vocab_size.value_or(0),
                     are_made ? data.text + data.bin : "");
}

bool have_different_tokens(const std::vector<RunSummary>& runs) {
  return std::any_of(runs.begin(), runs.end(), [&](const RunSummary& run) {
    return run.config && runs[0].config && tokens_of(*run.config) != tokens_of(*runs[0].config);
  });
}

// The settings that are not the same in all runs, each with its value in every run; "-" where a run does not say.
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

std::optional<double> tokens_per_second(const RunHistory& history) {
  return history.seconds > 0 ? std::optional(history.tokens / history.seconds) : std::nullopt;
}

template <class Points>
std::vector<LossCurve> curves_of(const std::vector<RunSummary>& runs, const Points& points) {
  std::vector<LossCurve> curves;
  for (const RunSummary& run : runs) curves.push_back({printable_line(run.folder), points(run.history)});
  return curves;
}

std::string drawing(const std::vector<RunSummary>& runs, int columns, bool unicode) {
  constexpr int kRows = 16;
  const auto draw = [&](std::vector<LossCurve> curves, const char* quantity = "loss") {
    return draw_loss_curve(std::move(curves), columns, kRows, unicode, quantity);
  };
  if (runs.size() == 1) {
    const RunHistory& history = runs[0].history;
    return draw({{"training", history.loss.means()}, {"validation", history.validation_loss.points()}});
  }
  const auto all = [&](const auto& have) {
    return std::all_of(runs.begin(), runs.end(), [&](const RunSummary& run) { return have(run.history); });
  };
  const bool differ = have_different_tokens(runs);
  if (differ && all([](const RunHistory& h) { return !h.bits_per_byte.empty(); })) {
    return "validation bits per byte by step, because the tokens of the runs differ\n" +
           draw(curves_of(runs, [](const RunHistory& h) { return h.bits_per_byte.points(); }), "bits");
  }
  const bool validated = all([](const RunHistory& h) { return h.best_evaluation.has_value(); });
  const std::string curves = draw(
      curves_of(runs, [&](const RunHistory& h) { return validated ? h.validation_loss.points() : h.loss.means(); }));
  if (curves.empty()) return "";
  return fmt::format("{} loss by step{}\n{}", validated ? "validation" : "training",
                     differ ? "; the tokens of the runs differ, so that their losses cannot be compared" : "", curves);
}

// The cells of a run's row, below kColumns; "-" for what is not known.
constexpr const char* kColumns[] = {"run",      "parameters", "steps",     "tokens",   "loss",
                                    "val loss", "best",       "bits/byte", "tokens/s", "time"};
constexpr const char* kFirstToGo[] = {"tokens", "time", "parameters", "bits/byte", "tokens/s", "val loss"};

std::vector<std::string> row_of(const RunSummary& run) {
  const RunHistory& h = run.history;
  const auto shown = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? fmt::format("{:.4f}", *value) : "-";
  };
  const auto counted = [](const std::optional<double>& value) { return value ? format_count(*value) : "-"; };
  using Number = std::optional<double>;
  return {printable_line(run.folder),
          counted(run.parameters()),
          h.last_step ? with_commas(h.last_step->step) : "-",
          counted(h.last_step ? Number(h.tokens) : std::nullopt),
          shown(h.last_step ? Number(h.last_step->loss) : std::nullopt),
          shown(h.last_evaluation ? Number(h.last_evaluation->loss) : std::nullopt),
          shown(h.best_evaluation ? Number(h.best_evaluation->loss) : std::nullopt),
          shown(h.best_evaluation ? h.best_evaluation->bits_per_byte : std::nullopt),
          counted(tokens_per_second(h)),
          h.last_step ? format_duration(h.seconds) : "-"};
}

// What the rows are about on the left, their values on the right.
TextTable table_of(std::vector<std::vector<std::string>> rows) {
  std::vector<TextColumn> columns(rows[0].size(), {TextColumn::right});
  columns[0].alignment = TextColumn::left;
  return {std::move(columns), std::move(rows)};
}

// A terminal that is too narrow for all columns gets those that matter most.
void drop_columns(TextTable& table, int terminal_columns) {
  for (const char* heading : kFirstToGo) {
    const std::vector<size_t> widths = table.widths();
    const size_t gaps = table.between.size() * (widths.size() - 1);
    if (std::accumulate(widths.begin(), widths.end(), gaps) <= static_cast<size_t>(terminal_columns)) return;
    const auto& headings = table.rows[0];
    const auto column = std::find(headings.begin(), headings.end(), heading) - headings.begin();
    table.columns.erase(table.columns.begin() + column);
    for (auto& row : table.rows) row.erase(row.begin() + column);
  }
}

std::string settings_text(const std::vector<RunSummary>& runs) {
  const std::vector<std::vector<std::string>> settings = differing_settings(runs);
  if (settings.empty()) return "";
  return "\nThe runs differ in these settings, whose values are in the same order:\n" + table_of(settings).text();
}

}  // namespace

std::optional<int64_t> RunSummary::parameters() const {
  return config && config->model.vocab_size ? std::optional(parameter_count(config->model)) : std::nullopt;
}

std::vector<RunSummary> read_runs(const std::vector<std::string>& folders) {
  std::vector<RunSummary> runs;
  for (const std::string& folder : folders) {
    require_run(folder);
    RunSummary& run = runs.emplace_back(RunSummary{folder, {}, config::left_configuration(folder)});
    while (run.folder.size() > 1 && run.folder.back() == '/') run.folder.pop_back();
    read_metrics(folder + "/" + kMetricsFile, std::numeric_limits<int64_t>::max(), run.history);
  }
  return runs;
}

std::string draw_runs(const std::vector<RunSummary>& runs, int columns, bool unicode) {
  constexpr int kCurveColumns = 80;
  std::vector<std::vector<std::string>> rows{{std::begin(kColumns), std::end(kColumns)}};
  for (const RunSummary& run : runs) rows.push_back(row_of(run));
  TextTable table = table_of(std::move(rows));
  if (columns > 0) drop_columns(table, columns);
  const std::string curves = drawing(runs, columns > 0 ? columns : kCurveColumns, unicode);
  return curves + (curves.empty() ? "" : "\n\n") + table.text() + settings_text(runs);
}

std::string runs_json(const std::vector<RunSummary>& runs) {
  using nlohmann::ordered_json;
  const auto number = [](const std::optional<double>& value) { return value ? ordered_json(*value) : ordered_json(); };
  ordered_json list = ordered_json::array();
  const std::vector<std::vector<std::string>> differing = differing_settings(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunSummary& run = runs[i];
    const RunHistory& h = run.history;
    ordered_json settings = ordered_json::object();
    for (const auto& row : differing) settings[row[0]] = row[1 + i];
    const auto& [step, last, best] = std::tie(h.last_step, h.last_evaluation, h.best_evaluation);
    list.push_back({{"folder", run.folder},
                    {"parameters", run.parameters() ? ordered_json(*run.parameters()) : ordered_json()},
                    {"steps", step ? ordered_json(step->step) : ordered_json()},
                    {"tokens", h.tokens},
                    {"seconds", h.seconds},
                    {"tokens_per_second", number(tokens_per_second(h))},
                    {"loss", step ? ordered_json(step->loss) : ordered_json()},
                    {"val_loss", last ? ordered_json(last->loss) : ordered_json()},
                    {"best_val_loss", best ? ordered_json(best->loss) : ordered_json()},
                    {"best_step", best ? ordered_json(best->step) : ordered_json()},
                    {"best_val_bits_per_byte", best ? number(best->bits_per_byte) : ordered_json()},
                    {"differing_settings", std::move(settings)}});
  }
  return ordered_json{{"runs", std::move(list)}}.dump(2, ' ', /*ensure_ascii=*/true,
                                                      ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace gpt
