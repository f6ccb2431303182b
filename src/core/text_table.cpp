#include "gpt/core/text_table.h"

#include <algorithm>

#include "gpt/core/format.h"
#include "gpt/core/utf8.h"

namespace gpt {
namespace {

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), utf8::begins_character));
}

std::string aligned(const std::string& cell, TextColumn::Alignment alignment, size_t width) {
  const std::string blanks(width - width_of(cell), ' ');
  return alignment == TextColumn::left ? cell + blanks : blanks + cell;
}

}  // namespace

std::vector<size_t> TextTable::widths() const {
  std::vector<size_t> result;
  for (const TextColumn& column : columns) {
    size_t& width = result.emplace_back(column.least_width);
    for (const auto& row : rows) width = std::max(width, width_of(row[result.size() - 1]));
  }
  return result;
}

std::vector<std::string> TextTable::lines(int terminal_columns) const {
  const std::vector<size_t> all = widths();
  size_t last_column = width_of(before);  // where it begins
  for (size_t i = 0; i + 1 < all.size(); ++i) last_column += all[i] + width_of(between);
  std::vector<std::string> result;
  for (const auto& row : rows) {
    std::string line = before;
    for (size_t i = 0; i < all.size(); ++i)
      line += (i > 0 ? between : "") + aligned(row[i], columns[i].alignment, all[i]);
    line += after;
    line.erase(line.find_last_not_of(' ') + 1);
    result.push_back(wrap_text(line, terminal_columns, static_cast<int>(last_column)));
  }
  return result;
}

std::string TextTable::text(int terminal_columns) const {
  std::string result;
  for (const std::string& line : lines(terminal_columns)) result += line + '\n';
  return result;
}

}  // namespace gpt
