#include "ladder_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/core/format.h"

namespace gpt::bench {
namespace {

// Time, tokens per second before and with it, and memory.
Cells speed_cells(const LadderRow& row) {
  const auto& measurement = row.measurement;
  if (!measurement) return {"-", "-", "-", "-"};
  return {fmt::format("{:.1f}", measurement->step_ms),
          row.tokens_per_second_before > 0 ? format_count(row.tokens_per_second_before) : "-",
          format_count(measurement->tokens_per_second), format_bytes(static_cast<double>(measurement->peak_bytes))};
}

// How close a step comes to what a large product and a large copy would allow.
std::string limit_cell(const LadderRow& row) {
  return row.least_ms ? as_share(*row.least_ms / row.measurement->step_ms) : "-";
}

bool has_limits(const std::vector<LadderRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const LadderRow& row) { return row.least_ms.has_value(); });
}

// With four digits after the point, and without a minus before zero.
std::string as_difference(double value) {
  constexpr double kDigits = 1e4;
  return fmt::format("{:+.4f}", std::round(kDigits * value) / kDigits + 0.0);
}

// Each, or where they are many, the least and the most.
std::string pairs_cell(const LadderRow& row) {
  constexpr size_t kMostShown = 3;
  const std::vector<double>& gains = row.pair_gains;
  if (gains.empty()) return "-";
  if (gains.size() <= kMostShown) return fmt::format("{:.2f}", fmt::join(gains, ", "));
  const auto [least, most] = std::minmax_element(gains.begin(), gains.end());
  return fmt::format("{:.2f} to {:.2f}, {}", *least, *most, plural(std::ssize(gains), "pair"));
}

Cells cells_of(const LadderRow& row, bool is_ladder, bool has_limit, double start_loss) {
  const auto& m = row.measurement;
  Cells cells{row.name};
  for (const std::string& cell : speed_cells(row)) cells.push_back(cell);
  cells.push_back(m ? as_ratio(row.gain) : "-");
  cells.push_back(pairs_cell(row));
  if (is_ladder) cells.push_back(m ? as_ratio(row.total_gain) : "-");
  if (has_limit) cells.push_back(limit_cell(row));
  cells.push_back(m ? fmt::format("{:.4f}", m->loss) : "-");
  cells.push_back(m ? as_difference(m->loss - start_loss) : "-");
  cells.push_back(row.verdict);
  return cells;
}

Table variant_table(const std::vector<LadderRow>& rows) {
  const bool has_limit = has_limits(rows);
  Cells titles{"with", "ms/step", "before", "tokens/s", "memory", "speed", "of each pair"};
  if (has_limit) titles.emplace_back("of the limit");
  titles.emplace_back("verdict");
  Table table{{titles}};
  for (const LadderRow& row : rows) {
    Cells cells{row.settings};
    for (const std::string& cell : speed_cells(row)) cells.push_back(cell);
    cells.push_back(row.measurement ? as_ratio(row.gain) : "-");
    cells.push_back(pairs_cell(row));
    if (has_limit) cells.push_back(limit_cell(row));
    cells.push_back(row.verdict);
    table.rows.push_back(std::move(cells));
  }
  return table;
}

// As `gpt-bench combo` takes it.
std::string full_set_of(const Ladder& ladder) {
  std::vector<std::string> names;
  for (const LadderRow& row : ladder.rows) {
    if (row.kept && row.name != ladder.rows.front().name) names.push_back(row.name);
  }
  return names.empty() ? "which is the start alone" : fmt::format("`{}`", fmt::join(names, "+"));
}

// How each step was measured, and the tables.
Document text_of(const Ladder& ladder) {
  const double start_loss = start_loss_of(ladder.rows);
  Document text{
      fmt::format(
          "Each rung was measured in turn with the one below it, until {}: medians of {} after {} to warm up. Differences of less than "
          "2 % are noise. `before` is the tokens per second of the rung below, measured in turn with those of the row. `in all` "
          "multiplies the gains of what is kept, but not those that cannot be told. The loss is the mean of the last updates, at most ten, and "
          "`change` its difference from the start's. `of the limit` is the share that a step reaches of what this machine could do at "
          "best: the least time of its parts, from the speeds of a large product in the type of the row's and of a large copy.",
          kPairsEnd, plural(ladder.length.updates, "update"), ladder.length.warm_up),
      ladder_table(ladder.rows, "rung", /*is_ladder=*/true, start_loss), training_time(ladder.rows)};
  if (!ladder.switched.empty()) {
    text.push_back(fmt::format(
        "The start beside the full set, {}, and that without one of its rungs (and those that need it) or with one that was left "
        "out. `speed` is relative to that of the full set; the verdict is on what is taken away or added:",
        full_set_of(ladder)));
    text.push_back(ladder_table(ladder.switched, "full set", /*is_ladder=*/false, start_loss));
  }
  if (!ladder.variants.empty()) {
    text.push_back("Variants of the full set, with their tokens per second relative to its own:");
    text.push_back(variant_table(ladder.variants));
  }
  add_settings(text, ladder.rows, "rungs");
  return text;
}

}  // namespace

Table ladder_table(const std::vector<LadderRow>& rows, const char* first_column, bool is_ladder, double start_loss) {
  Cells titles{first_column, "ms/step", "before", "tokens/s", "memory", is_ladder ? "gain" : "speed", "of each pair"};
  const bool has_limit = has_limits(rows);
  if (is_ladder) titles.emplace_back("in all");
  if (has_limit) titles.emplace_back("of the limit");
  for (const char* title : {"loss", "change", "verdict"}) titles.emplace_back(title);
  Table table{{titles}};
  for (const LadderRow& row : rows) table.rows.push_back(cells_of(row, is_ladder, has_limit, start_loss));
  return table;
}

std::string training_time(const std::vector<LadderRow>& rows) {
  constexpr int64_t kUpdates = 1000;
  const double first = rows.front().measurement->step_ms * kUpdates / 1e3;
  const LadderRow* fastest = &rows.front();
  for (const LadderRow& row : rows)
    if (row.measurement && row.kept && row.total_gain > fastest->total_gain) fastest = &row;
  const std::string text = fmt::format("Training for {} takes {} with the first row", plural(kUpdates, "update"),
                                       format_short_duration(first));
  if (fastest == &rows.front()) return text + ", and none is faster.";
  return fmt::format("{}, and {} with all up to {}.", text, format_short_duration(first / fastest->total_gain),
                     fastest->name);
}

double start_loss_of(const std::vector<LadderRow>& rows) { return rows.front().measurement->loss; }

void add_settings(Document& text, const std::vector<LadderRow>& rows, const char* of_what) {
  List list;
  for (const LadderRow& row : rows) list.items.push_back(fmt::format("{}: {}", row.name, row.settings));
  text.push_back(fmt::format("What the {} set:", of_what));
  text.push_back(std::move(list));
}

std::string json_of(const std::vector<LadderRow>& rows, std::optional<double> start_loss) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LadderRow& row : rows) {
    const bool has_difference = start_loss && row.measurement;
    list.push_back({{"name", row.name},
                    {"settings", row.settings},
                    {"gain", row.gain},
                    {"pair_gains", row.pair_gains},
                    {"tokens_per_second_before", row.tokens_per_second_before},
                    {"is_told", row.is_told},
                    {"total_gain", row.total_gain},
                    {"least_ms", row.least_ms ? nlohmann::ordered_json(*row.least_ms) : nlohmann::ordered_json()},
                    {"loss_difference", has_difference ? nlohmann::ordered_json(row.measurement->loss - *start_loss)
                                                       : nlohmann::ordered_json()},
                    {"kept", row.kept},
                    {"verdict", row.verdict},
                    {"measurement", row.measurement ? nlohmann::ordered_json::parse(to_json(*row.measurement))
                                                    : nlohmann::ordered_json()}});
  }
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// A machine that others use too changes while it is measured: the gains come from runs in turn, and single times do not.
std::vector<Bar> bars_of(const std::vector<LadderRow>& rows) {
  const double start_ms = rows.front().measurement->step_ms;
  std::vector<Bar> bars;
  for (const LadderRow& row : rows) {
    if (!row.measurement) continue;
    const double ms = start_ms / row.total_gain;
    bars.push_back({row.name, row.is_told ? fmt::format("{:.1f} ms, {:.2f}x", ms, row.total_gain) : "cannot tell", ms,
                    row.kept, row.is_told});
  }
  return bars;
}

Findings findings(const Ladder& ladder) {
  const double start_loss = start_loss_of(ladder.rows);
  return {.text = text_of(ladder),
          .json = fmt::format(R"({{"warm_up": {}, "updates": {}, "rows": {}, "switched": {}, "variants": {}}})",
                              ladder.length.warm_up, ladder.length.updates, json_of(ladder.rows, start_loss),
                              json_of(ladder.switched, start_loss), json_of(ladder.variants, std::nullopt)),
          .chart_title = kTimeChart,
          .bars = bars_of(ladder.rows),
          .legend = {"kept", "left out"},
          .threads = ladder.rows.front().measurement->threads,
          .complete = ladder.complete};
}

}  // namespace gpt::bench
