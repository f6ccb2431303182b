// What a command of gpt-bench writes for people, as paragraphs, tables and lists: in a Markdown file and on a terminal.
#pragma once

#include <string>
#include <variant>
#include <vector>

namespace gpt::bench {

using Cells = std::vector<std::string>;

// The first row is the heading. A column of numbers, with or without units, is aligned to the right.
struct Table {
  std::vector<Cells> rows;
};

struct List {
  std::vector<std::string> items;
};

// A paragraph, in which names are in back-ticks, a table, or a list of such paragraphs.
using Block = std::variant<std::string, Table, List>;
using Document = std::vector<Block>;

std::string to_markdown(const Document& document);
// The document without marks: names are in quotes, and the columns of a table are separated by spaces. Lines are broken between words; what
// of a row does not fit into `columns` follows below it, with the headings. 0 columns: lines are as long as they are.
std::string to_plain_text(const Document& document, int columns = 0);

// Numbers as all tables show them.
std::string as_ratio(double value);  // "1.25x"
std::string as_share(double value);  // a share of 1: "25 %"

}  // namespace gpt::bench
