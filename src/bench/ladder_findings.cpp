#include "ladder_findings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gpt/core/format.h"
#include "markdown_table.h"

namespace gpt {
namespace {

Cells cells_of(const LadderRow& row, bool is_ladder) {
  if (!row.measurement) return {row.name, "-", "-", "-", "-", "-", "-", row.verdict};
  const Measurement& m = *row.measurement;
  return {row.name,
          fmt::format("{:.1f}", m.step_ms),
          format_count(m.tokens_per_second),
          format_bytes(static_cast<double>(m.peak_bytes)),
          as_ratio(row.gain),
          is_ladder ? as_ratio(row.total_gain) : "-",
          fmt::format("{:.4f}", m.loss),
          row.verdict};
}

std::string variant_table(const std::vector<LadderRow>& rows) {
  std::vector<Cells> cells{{"with", "ms/step", "tokens/s", "memory", "speed", "verdict"}};
  for (const LadderRow& row : rows) {
    const Cells all = cells_of(row, false);
    cells.push_back({row.settings, all[1], all[2], all[3], all[4], row.verdict});
  }
  return markdown_table(cells);
}

// How each step was measured, and the tables.
std::string text_of(const Ladder& ladder) {
  std::string text = fmt::format(
      "Each rung was measured in turn with the one below it, {}: medians of {} after {} to warm up. Differences of less than "
      "2 % are noise. The loss is the mean of the last updates, at most ten.\n\n",
      plural(ladder.rounds, "pair"), plural(ladder.length.updates, "update"), ladder.length.warm_up);
  text += ladder_table(ladder.rows, "rung", /*is_ladder=*/true);
  if (!ladder.removed.empty()) {
    text += "\nThe full set without one of them:\n\n" + ladder_table(ladder.removed, "without", /*is_ladder=*/false);
  }
  if (!ladder.variants.empty()) {
    text += "\nVariants of the full set, with their tokens per second relative to its own:\n\n" +
            variant_table(ladder.variants);
  }
  return text + settings_list(ladder.rows, "rungs");
}

}  // namespace

std::string ladder_table(const std::vector<LadderRow>& rows, const char* first_column, bool is_ladder) {
  std::vector<Cells> cells{
      {first_column, "ms/step", "tokens/s", "memory", is_ladder ? "gain" : "speed", "in all", "loss", "verdict"}};
  for (const LadderRow& row : rows) cells.push_back(cells_of(row, is_ladder));
  return markdown_table(cells);
}

std::string settings_list(const std::vector<LadderRow>& rows, const char* of_what) {
  std::string text = fmt::format("\nWhat the {} set:\n\n", of_what);
  for (const LadderRow& row : rows) text += fmt::format("* {}: {}\n", row.name, row.settings);
  return text;
}

std::string json_of(const std::vector<LadderRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LadderRow& row : rows) {
    list.push_back({{"name", row.name},
                    {"settings", row.settings},
                    {"gain", row.gain},
                    {"total_gain", row.total_gain},
                    {"kept", row.kept},
                    {"verdict", row.verdict},
                    {"measurement", row.measurement ? nlohmann::ordered_json::parse(to_json(*row.measurement))
                                                    : nlohmann::ordered_json()}});
  }
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::vector<Bar> bars_of(const std::vector<LadderRow>& rows) {
  std::vector<Bar> bars;
  for (const LadderRow& row : rows) {
    if (!row.measurement) continue;
    const double ms = row.measurement->step_ms;
    bars.push_back({row.name, fmt::format("{:.1f} ms, {:.2f}x", ms, row.total_gain), ms, row.kept});
  }
  return bars;
}

Findings findings(const Ladder& ladder) {
  return {.text = text_of(ladder),
          .json = fmt::format(
              R"({{"rounds": {}, "warm_up": {}, "updates": {}, "rows": {}, "removed": {}, "variants": {}}})",
              ladder.rounds, ladder.length.warm_up, ladder.length.updates, json_of(ladder.rows),
              json_of(ladder.removed), json_of(ladder.variants)),
          .chart_title = "Milliseconds per update",
          .bars = bars_of(ladder.rows),
          .complete = ladder.complete};
}

}  // namespace gpt
