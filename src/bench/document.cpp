#include "gpt/bench/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace gpt {
namespace {

struct Column {
  size_t width = 3;
  bool is_text = false;
};

std::vector<Column> columns_of(const Table& table) {
  std::vector<Column> columns(table.rows[0].size());
  for (size_t line = 0; line < table.rows.size(); ++line) {
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& cell = table.rows[line][i];
      columns[i].width = std::max(columns[i].width, cell.size());
      if (line > 0 && !cell.empty() && std::string_view("0123456789+-").find(cell[0]) == std::string_view::npos)
        columns[i].is_text = true;
    }
  }
  return columns;
}

std::string aligned(const std::string& cell, const Column& column) {
  return column.is_text ? fmt::format("{:<{}}", cell, column.width) : fmt::format("{:>{}}", cell, column.width);
}

// GitHub's, aligned so that it can be read as it is.
struct Markdown {
  std::string operator()(const std::string& paragraph) const { return paragraph + "\n"; }

  std::string operator()(const Table& table) const {
    const std::vector<Column> columns = columns_of(table);
    std::string text, rule;
    for (const Column& column : columns)
      rule += fmt::format("| {}{} ", std::string(column.width - 1, '-'), column.is_text ? '-' : ':');
    for (const Cells& row : table.rows) {
      for (size_t i = 0; i < columns.size(); ++i) text += fmt::format("| {} ", aligned(row[i], columns[i]));
      text += "|\n";
      if (&row == &table.rows.front()) text += rule + "|\n";
    }
    return text;
  }

  std::string operator()(const List& list) const {
    std::string text;
    for (const std::string& item : list.items) text += fmt::format("* {}\n", item);
    return text;
  }
};

struct PlainText {
  std::string operator()(std::string paragraph) const {
    std::replace(paragraph.begin(), paragraph.end(), '`', '"');
    return paragraph + "\n";
  }

  std::string operator()(const Table& table) const {
    const std::vector<Column> columns = columns_of(table);
    Cells rule;
    for (const Column& column : columns) rule.emplace_back(column.width, '-');
    std::string text = line_of(table.rows[0], columns) + line_of(rule, columns);
    for (size_t i = 1; i < table.rows.size(); ++i) text += line_of(table.rows[i], columns);
    return text;
  }

  std::string operator()(const List& list) const {
    std::string text;
    for (const std::string& item : list.items) text += "- " + (*this)(item);
    return text;
  }

 private:
  static std::string line_of(const Cells& cells, const std::vector<Column>& columns) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i)
      line += fmt::format("{}{}", i > 0 ? "  " : "", aligned(cells[i], columns[i]));
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
  }
};

// With an empty line between two blocks.
template <typename Renderer>
std::string rendered(const Document& document, const Renderer& renderer) {
  std::string text;
  for (const Block& block : document) {
    if (!text.empty()) text += '\n';
    text += std::visit(renderer, block);
  }
  return text;
}

}  // namespace

std::string to_markdown(const Document& document) { return rendered(document, Markdown()); }

std::string to_plain_text(const Document& document) { return rendered(document, PlainText()); }

std::string as_ratio(double value) { return fmt::format("{:.2f}x", value); }

std::string as_share(double value) { return fmt::format("{:.0f} %", 100 * value); }

}  // namespace gpt
