#include "gpt/bench/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/config/load.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/version.h"
#include "gpt/device/precision.h"

namespace gpt {
namespace {

using Cells = std::vector<std::string>;

// The first column and the last are text, the others numbers.
std::string table(const std::vector<Cells>& rows) {
  std::vector<size_t> widths(rows[0].size(), 3);
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto is_text = [&](size_t column) { return column == 0 || column + 1 == widths.size(); };
  std::string text;
  for (size_t line = 0; line < rows.size(); ++line) {
    for (size_t i = 0; i < widths.size(); ++i) {
      text += fmt::format(fmt::runtime(is_text(i) ? "| {:<{}} " : "| {:>{}} "), rows[line][i], widths[i]);
    }
    text += "|\n";
    if (line > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i)
      text += fmt::format("| {}{} ", std::string(widths[i] - 1, '-'), is_text(i) ? '-' : ':');
    text += "|\n";
  }
  return text;
}

Cells cells_of(const LadderRow& row, bool is_ladder) {
  if (!row.measurement) return {row.name, "-", "-", "-", "-", "-", "-", row.verdict};
  const Measurement& m = *row.measurement;
  const auto ratio = [](double value) { return fmt::format("{:.2f}x", value); };
  return {row.name,
          fmt::format("{:.1f}", m.step_ms),
          format_count(m.tokens_per_second),
          format_bytes(static_cast<double>(m.peak_bytes)),
          ratio(row.gain),
          is_ladder ? ratio(row.total_gain) : "-",
          fmt::format("{:.4f}", m.loss),
          row.verdict};
}

std::string ladder_table(const std::vector<LadderRow>& rows, const char* first, bool is_ladder) {
  std::vector<Cells> cells{
      {first, "ms/step", "tokens/s", "memory", is_ladder ? "gain" : "speed", "in all", "loss", "verdict"}};
  for (const LadderRow& row : rows) cells.push_back(cells_of(row, is_ladder));
  return table(cells);
}

std::string batch_table(const std::vector<LadderRow>& rows) {
  std::vector<Cells> cells{{"batch_size", "ms/step", "tokens/s", "memory", "verdict"}};
  for (const LadderRow& row : rows) {
    const Cells all = cells_of(row, false);
    cells.push_back({row.name, all[1], all[2], all[3], row.verdict});
  }
  return table(cells);
}

nlohmann::ordered_json json_of(const std::vector<LadderRow>& rows) {
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
  return list;
}

// In the unit of its work, and as a share of what the machine can do.
std::string speed_of(const OperatorSpeed& row) {
  const double per_second = row.work / (1e-3 * row.ours_ms);
  return row.is_product ? fmt::format("{:.1f} GFLOP/s", per_second / 1e9)
                        : fmt::format("{:.1f} GB/s", per_second / 1e9);
}

double share_of_peak(const OperatorSpeed& row, const OperatorSpeeds& all) {
  return row.work / (1e-3 * row.ours_ms) / (row.is_product ? all.flops : all.bandwidth);
}

std::string operator_table(const OperatorSpeeds& all) {
  std::vector<Cells> cells{{"operator", "ms", "LibTorch's ms", "gain", "speed", "of the peak"}};
  for (const OperatorSpeed& row : all.rows) {
    cells.push_back({row.name, fmt::format("{:.3f}", row.ours_ms), fmt::format("{:.3f}", row.libtorch_ms),
                     fmt::format("{:.2f}x", row.libtorch_ms / row.ours_ms), speed_of(row),
                     fmt::format("{:.0f} %", 100 * share_of_peak(row, all))});
  }
  return table(cells);
}

nlohmann::ordered_json json_of(const OperatorSpeeds& all) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OperatorSpeed& row : all.rows) {
    list.push_back({{"name", row.name},
                    {"ms", row.ours_ms},
                    {"libtorch_ms", row.libtorch_ms},
                    {row.is_product ? "flops" : "bytes", row.work},
                    {"share_of_peak", share_of_peak(row, all)}});
  }
  return {{"dtype", name_of(all.type)}, {"flops", all.flops}, {"bandwidth", all.bandwidth}, {"operators", list}};
}

// How each step was measured, and the tables.
std::string ladder_text(const Ladder& ladder) {
  std::string text = fmt::format(
      "Each step was measured in turn with the one below it, {}: medians of {} after {} to warm up. Differences of less than "
      "2 % are noise. The loss is the mean of the last updates, at most ten.\n\n",
      plural(ladder.rounds, "pair"), plural(ladder.length.updates, "update"), ladder.length.warm_up);
  text += ladder_table(ladder.rows, "step", /*is_ladder=*/true);
  if (!ladder.removed.empty()) {
    text += "\nThe full set without one of them:\n\n" + ladder_table(ladder.removed, "without", /*is_ladder=*/false);
  }
  if (!ladder.batches.empty()) text += "\nThe full set with other batches:\n\n" + batch_table(ladder.batches);
  text += "\nWhat the steps set:\n\n";
  for (const LadderRow& row : ladder.rows) text += fmt::format("* {}: {}\n", row.name, row.settings);
  return text;
}

std::string operators_text(const OperatorSpeeds& all) {
  return fmt::format(
             "In {}, for one micro-batch: medians of alternating runs. The peaks are those of a large product ({:.1f} GFLOP/s) "
             "and of a large copy ({:.1f} GB/s), measured in the same run; what fits into a cache can exceed the second. The "
             "bytes are those of all that an operator reads and writes, each once.\n\n",
             name_of(all.type), all.flops / 1e9, all.bandwidth / 1e9) +
         operator_table(all);
}

struct Bar {
  std::string name, label;
  double length;
  bool is_dark;
};

std::vector<Bar> bars_of(const BenchResults& results) {
  std::vector<Bar> bars;
  for (const LadderRow& row : results.ladder.rows) {
    if (!row.measurement) continue;
    const double ms = row.measurement->step_ms;
    bars.push_back({row.name, fmt::format("{:.1f} ms, {:.2f}x", ms, row.total_gain), ms, row.kept});
  }
  for (const OperatorSpeed& row : results.operators.rows) {
    const double gain = row.libtorch_ms / row.ours_ms;
    bars.push_back({row.name, fmt::format("{:.2f}x", gain), gain, gain >= 1});
  }
  return bars;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::string to_markdown(const BenchResults& results) {
  const ModelConfig& m = results.config.model;
  std::string text = fmt::format("# gpt-bench {}\n\n`{}`, {}\n\n{}, {}; {}, {}, width {}, {} x {} tokens\n\n",
                                 results.title, results.command, results.date, results.device.name,
                                 plural(results.threads, "thread"), plural(m.n_layer, "layer"),
                                 plural(m.n_head, "head"), m.n_embd, results.config.training.batch_size, m.block_size);
  if (!results.complete()) text += "Stopped before it was complete.\n\n";
  return text + (results.operators.rows.empty() ? ladder_text(results.ladder) : operators_text(results.operators));
}

std::string to_json(const BenchResults& results) {
  const Ladder& ladder = results.ladder;
  nlohmann::ordered_json json{{"title", results.title},        {"command", results.command},
                              {"date", results.date},          {"version", version_text()},
                              {"commit", commit_id()},         {"device", results.device.name},
                              {"threads", results.threads},    {"configuration", config::dump(results.config)},
                              {"complete", results.complete()}};
  if (results.operators.rows.empty()) {
    json.update({{"rounds", ladder.rounds},
                 {"warm_up", ladder.length.warm_up},
                 {"updates", ladder.length.updates},
                 {"rows", json_of(ladder.rows)},
                 {"removed", json_of(ladder.removed)},
                 {"batches", json_of(ladder.batches)}});
  } else {
    json.update(json_of(results.operators));
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_svg(const BenchResults& results) {
  constexpr int kRow = 26, kLeft = 240, kWidth = 440, kTop = 40;
  const std::vector<Bar> bars = bars_of(results);
  double longest = 0;
  for (const Bar& bar : bars) longest = std::max(longest, bar.length);
  const char* const heading =
      results.operators.rows.empty() ? "Milliseconds per update, " : "How many times as fast as LibTorch's operators, ";
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"22\" font-size=\"15\">{}</text>\n",
      kLeft + kWidth + 170, kTop + std::ssize(bars) * kRow + 10, escaped(heading + results.device.name));
  int y = kTop;
  for (const Bar& bar : bars) {
    const double width = kWidth * bar.length / longest;
    text += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n"
        "<text x=\"{:.1f}\" y=\"{}\">{}</text>\n",
        kLeft - 8, y + 16, escaped(bar.name), kLeft, y + 3, width, kRow - 8, bar.is_dark ? "#2a6f97" : "#b8c4cc",
        kLeft + width + 6, y + 16, bar.label);
    y += kRow;
  }
  return text + "</svg>\n";
}

std::string write_results(const BenchResults& results, const std::string& folder) {
  create_folders(folder);
  std::string date = results.date;
  std::erase(date, ':');
  const std::string path = fmt::format("{}/{}-{}", folder, results.title, date);
  const std::pair<const char*, std::string> files[] = {{".md", to_markdown(results)},
                                                       {".json", to_json(results)},
                                                       {".svg", to_svg(results)}};
  for (const auto& [ending, text] : files) {
    AtomicFile file(path + ending);
    file.write(text);
    file.commit(Durability::unsynced);
  }
  return path;
}

}  // namespace gpt
