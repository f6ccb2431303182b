#include "gpt/bench/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "gpt/core/format.h"
#include "gpt/core/text_table.h"

namespace gpt::bench {
namespace {

// Numbers on the right, text on the left.
TextTable aligned(const Table& table) {
  std::vector<TextColumn> columns(table.rows[0].size(), {TextColumn::right, /*least_width=*/3});
  for (size_t line = 1; line < table.rows.size(); ++line) {
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& cell = table.rows[line][i];
      if (!cell.empty() && std::string_view("0123456789+-").find(cell[0]) == std::string_view::npos)
        columns[i].alignment = TextColumn::left;
    }
  }
  return {std::move(columns), table.rows};
}

// GitHub's, aligned so that it can be read as it is.
struct Markdown {
  std::string operator()(const std::string& paragraph) const { return paragraph + "\n"; }

  std::string operator()(const Table& table) const {
    TextTable result = aligned(table);
    result.before = "| ", result.between = " | ", result.after = " |";
    Cells rule;
    for (const size_t width : result.widths()) {
      const bool is_text = result.columns[rule.size()].alignment == TextColumn::left;
      rule.push_back(std::string(width - 1, '-') + (is_text ? '-' : ':'));
    }
    result.rows.insert(result.rows.begin() + 1, rule);
    return result.text();
  }

  std::string operator()(const List& list) const {
    std::string text;
    for (const std::string& item : list.items) text += fmt::format("* {}\n", item);
    return text;
  }
};

class PlainText {
 public:
  explicit PlainText(int columns) : columns_(columns) {}

  std::string operator()(std::string paragraph) const { return wrapped(std::move(paragraph), 0); }

  std::string operator()(const Table& table) const {
    TextTable shown = aligned(table);
    Cells rule;
    for (const size_t width : shown.widths()) rule.emplace_back(width, '-');
    shown.rows.insert(shown.rows.begin() + 1, rule);
    const size_t fit = fitting(shown.widths());
    shown.columns.resize(fit);
    const std::vector<std::string> lines = shown.lines();
    std::string text = lines[0] + "\n" + lines[1] + "\n";
    for (size_t i = 1; i < table.rows.size(); ++i)
      text += lines[i + 1] + "\n" + rest_of(table.rows[i], table.rows[0], fit);
    return text;
  }

  std::string operator()(const List& list) const {
    std::string text;
    for (const std::string& item : list.items) text += wrapped("- " + item, 2);
    return text;
  }

 private:
  std::string wrapped(std::string text, int indent) const {
    std::replace(text.begin(), text.end(), '`', '"');
    return wrap_text(text, columns_, indent) + "\n";
  }

  // How many of them, from the first, stand beside each other.
  size_t fitting(const std::vector<size_t>& widths) const {
    size_t sum = 0, count = 0;
    for (const size_t width : widths) {
      sum += width + (count > 0 ? 2 : 0);
      if (count > 0 && columns_ > 0 && sum > static_cast<size_t>(columns_)) break;
      ++count;
    }
    return count;
  }

  // "    of each pair 1.25, 1.22; verdict kept: faster"
  std::string rest_of(const Cells& cells, const Cells& headings, size_t first) const {
    constexpr int kIndent = 4;
    std::string text;
    for (size_t i = first; i < cells.size(); ++i) {
      if (!cells[i].empty() && cells[i] != "-")
        text += fmt::format("{}{} {}", text.empty() ? "" : "; ", headings[i], cells[i]);
    }
    return text.empty() ? "" : wrap_text(std::string(kIndent, ' ') + text, columns_, kIndent) + "\n";
  }

  const int columns_;
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

std::string to_plain_text(const Document& document, int columns) { return rendered(document, PlainText(columns)); }

std::string as_ratio(double value) { return fmt::format("{:.2f}x", value); }

std::string as_share(double value) { return fmt::format("{:.0f} %", 100 * value); }

}  // namespace gpt::bench
