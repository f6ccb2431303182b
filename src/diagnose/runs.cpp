#include "gpt/diagnose/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "gpt/board/run_groups.h"
#include "gpt/config/output_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/lock.h"
#include "gpt/core/printable.h"
#include "gpt/core/text_table.h"
#include "gpt/report/html_report.h"
#include "gpt/report/loss_curve.h"
#include "gpt/run/folder.h"

namespace gpt::diagnose {

using board::RunGroup;
using board::RunSummary;

namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kMetricsFile, ignored);
}

// The run that a folder is, or those that it holds.
std::vector<std::string> runs_in(const std::string& folder) {
  if (is_run(folder)) return {folder};
  std::error_code ignored;
  std::vector<std::string> runs;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (is_run(entry.path())) runs.push_back(entry.path().string());
  std::sort(runs.begin(), runs.end());
  if (!runs.empty()) return runs;
  const char* what = !fs::exists(folder, ignored)         ? "there is no such folder"
                     : !fs::is_directory(folder, ignored) ? "it is not a folder"
                                                          : "it holds no metrics.jsonl, and no folders with one";
  throw Error(ExitCode::config,
              fmt::format("--run: {}: {}; name the output_dir of a run, such as models/NAME", folder, what));
}

std::string state_of(const std::string& folder) {
  if (is_locked(folder)) return "trains";
  const auto reported = report::reported_state(folder + "/" + kReportFile);
  if (!reported) return "-";
  return reported->has_ended ? "done" : reported->is_open() ? "cut off" : "stopped";
}

std::optional<double> tokens_per_second(const report::RunHistory& history) {
  return history.seconds > 0 ? std::optional(history.tokens / history.seconds) : std::nullopt;
}

template <class Points>
std::vector<report::LossCurve> curves_of(const std::vector<RunSummary>& runs, const Points& points) {
  std::vector<report::LossCurve> curves;
  for (const RunSummary& run : runs) curves.push_back({printable_line(run.folder), points(run.history)});
  return curves;
}

using Draw = std::function<std::string(std::vector<report::LossCurve> curves, const char* quantity)>;

std::string drawing_of_one(const report::RunHistory& history, const Draw& draw) {
  return draw({{"training", history.loss.means()}, {"validation", history.validation_loss.points()}}, "loss");
}

// More curves than that are none to look at.
std::string drawing_of_several(const RunGroup& group, const Draw& draw) {
  constexpr size_t kMostCurves = 6;
  std::vector<RunSummary> runs = group.runs;
  if (runs.size() > kMostCurves) runs.erase(runs.begin() + kMostCurves, runs.end());
  const std::string which = runs.size() == group.runs.size() ? "" : fmt::format(" of the best {}", runs.size());
  const auto all = [&](const auto& have) {
    return std::all_of(runs.begin(), runs.end(), [&](const RunSummary& run) { return have(run.history); });
  };
  if (!group.have_same_tokens && all([](const report::RunHistory& h) { return !h.bits_per_byte.empty(); })) {
    return fmt::format("validation bits per byte by step{}, because the tokens of the runs differ\n", which) +
           draw(curves_of(runs, [](const report::RunHistory& h) { return h.bits_per_byte.points(); }), "bits");
  }
  const bool validated = all([](const report::RunHistory& h) { return h.best_evaluation.has_value(); });
  const std::string curves = draw(curves_of(runs,
                                            [&](const report::RunHistory& h) {
                                              return validated ? h.validation_loss.points() : h.loss.means();
                                            }),
                                  "loss");
  if (curves.empty()) return "";
  return fmt::format("{} loss by step{}{}\n{}", validated ? "validation" : "training", which,
                     group.have_same_tokens
                         ? ""
                         : "; the tokens of the runs differ, so that their losses cannot be compared",
                     curves);
}

// For those of each text that has several runs, or the only one.
std::string drawings(const std::vector<RunGroup>& groups, int columns, const Draw& draw) {
  std::string text;
  if (groups.size() > 1) text = "The runs read different texts, and only those that read the same are compared.\n\n";
  for (const RunGroup& group : groups) {
    const bool is_alone = group.runs.size() == 1;
    if (is_alone && groups.size() > 1) continue;
    const std::string curves = is_alone ? drawing_of_one(group.runs[0].history, draw) : drawing_of_several(group, draw);
    if (!curves.empty()) text += curves + "\n\n";
    if (const std::string verdict = verdict_on(group); !verdict.empty())
      text += wrap_text(verdict, columns, 0) + "\n\n";
  }
  return text;
}

// The cells of a run's row, below kColumns; "-" for what is not known.
constexpr const char* kColumns[] = {"run",      "state", "parameters", "steps",    "tokens", "loss",
                                    "val loss", "best",  "bits/byte",  "tokens/s", "time"};
constexpr const char* kFirstToGo[] = {"tokens", "time", "parameters", "bits/byte", "tokens/s", "state", "val loss"};

std::vector<std::string> row_of(const RunSummary& run) {
  const report::RunHistory& h = run.history;
  const auto shown = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? fmt::format("{:.4f}", *value) : "-";
  };
  const auto counted = [](const std::optional<double>& value) { return value ? format_count(*value) : "-"; };
  using Number = std::optional<double>;
  return {printable_line(run.folder),
          run.state,
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

std::vector<RunSummary> read_runs(const std::vector<std::string>& folders) {
  std::vector<RunSummary> runs;
  for (const std::string& named : folders) {
    for (const std::string& folder : runs_in(named)) {
      RunSummary& run = runs.emplace_back(RunSummary{folder, {}, config::left_configuration(folder), state_of(folder)});
      while (run.folder.size() > 1 && run.folder.back() == '/') run.folder.pop_back();
      report::read_metrics(folder + "/" + kMetricsFile, std::numeric_limits<int64_t>::max(), run.history);
    }
  }
  return runs;
}

std::string draw_runs(const std::vector<RunSummary>& runs, int columns, bool unicode) {
  constexpr int kCurveColumns = 80, kRows = 16;
  const std::vector<RunGroup> groups = grouped(runs);
  std::vector<RunSummary> ordered;
  std::vector<std::vector<std::string>> rows{{std::begin(kColumns), std::end(kColumns)}};
  for (const RunGroup& group : groups) {
    for (const RunSummary& run : group.runs) {
      rows.push_back(row_of(run));
      ordered.push_back(run);
    }
  }
  TextTable table = table_of(std::move(rows));
  if (columns > 0) drop_columns(table, columns);
  const int width = columns > 0 ? columns : kCurveColumns;
  const Draw draw = [&](std::vector<report::LossCurve> curves, const char* quantity) {
    return report::draw_loss_curve(std::move(curves), width, kRows, unicode, quantity);
  };
  return drawings(groups, width, draw) + table.text() + settings_text(ordered);
}

std::string runs_json(const std::vector<RunSummary>& given) {
  using nlohmann::ordered_json;
  std::vector<RunSummary> runs;
  std::vector<int64_t> texts;
  ordered_json verdicts = ordered_json::array();
  for (const RunGroup& group : grouped(given)) {
    const int64_t text = texts.empty() ? 0 : texts.back() + 1;
    for (const RunSummary& run : group.runs) runs.push_back(run), texts.push_back(text);
    if (const std::string verdict = verdict_on(group); !verdict.empty()) verdicts.push_back(verdict);
  }
  const auto number = [](const std::optional<double>& value) { return value ? ordered_json(*value) : ordered_json(); };
  ordered_json list = ordered_json::array();
  const std::vector<std::vector<std::string>> differing = differing_settings(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunSummary& run = runs[i];
    const report::RunHistory& h = run.history;
    ordered_json settings = ordered_json::object();
    for (const auto& row : differing) settings[row[0]] = row[1 + i];
    const auto& [step, last, best] = std::tie(h.last_step, h.last_evaluation, h.best_evaluation);
    list.push_back({{"folder", run.folder},
                    {"text", texts[i]},
                    {"state", run.state},
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
  return ordered_json{{"runs", std::move(list)}, {"verdicts", std::move(verdicts)}}.dump(
             2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace gpt::diagnose
