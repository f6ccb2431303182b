// Cells in columns, each as wide as its widest cell, as people read them on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gpt {

struct TextColumn {
  enum Alignment { left, right } alignment = left;
  size_t least_width = 0;  // in characters
};

struct TextTable {
  std::vector<TextColumn> columns;
  std::vector<std::vector<std::string>> rows = {};  // a cell for each column
  // What a line begins with, has between two cells, and ends with.
  std::string before = {}, between = "  ", after = {};

  std::vector<size_t> widths() const;
  // A string for each row, without a line break or blanks at its end. Where it would be wider than the terminal, its last cell goes on
  // in further lines below itself. 0: there is no terminal.
  std::vector<std::string> lines(int terminal_columns = 0) const;
  // The same, each with a line break.
  std::string text(int terminal_columns = 0) const;
};

}  // namespace gpt
