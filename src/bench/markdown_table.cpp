#include "markdown_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace gpt {

std::string markdown_table(const std::vector<Cells>& rows) {
  std::vector<size_t> widths(rows[0].size(), 3);
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto is_text = [&](size_t column) {
    return std::ranges::any_of(rows.begin() + 1, rows.end(), [&](const Cells& row) {
      return !row[column].empty() && std::string_view("0123456789+-").find(row[column][0]) == std::string_view::npos;
    });
  };
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

std::string as_ratio(double value) { return fmt::format("{:.2f}x", value); }

std::string as_share(double value) { return fmt::format("{:.0f} %", 100 * value); }

}  // namespace gpt
