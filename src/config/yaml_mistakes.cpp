#include "yaml_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "gpt/config/value.h"

namespace gpt::config {
namespace {

constexpr std::string_view kBlank = " \t";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// A line without its indentation and its comment.
std::string_view content(std::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || kBlank.find(line[i - 1]) != std::string_view::npos)) line = line.substr(0, i);
  }
  return trimmed(line);
}

int indentation(std::string_view line) {
  return static_cast<int>(std::min(line.find_first_not_of(kBlank), line.size()));
}

// The nearest line with content in a direction, or -1.
int neighbour(const Lines& lines, int line, int direction) {
  for (line += direction; line >= 0 && line < static_cast<int>(lines.size()); line += direction) {
    if (!content(lines[line]).empty()) return line;
  }
  return -1;
}

bool has_key(std::string_view text) {
  const auto ends_key = [&](size_t colon) {
    return colon + 1 == text.size() || kBlank.find(text[colon + 1]) != std::string_view::npos;
  };
  for (size_t colon = text.find(':'); colon != std::string_view::npos; colon = text.find(':', colon + 1)) {
    if (ends_key(colon)) return true;
  }
  return false;
}

std::optional<Mistake> tab_before(const Lines& lines, int line) {
  const std::string_view before = lines[line].substr(0, indentation(lines[line]));
  if (before.find('\t') == std::string_view::npos) return std::nullopt;
  return Mistake{line, static_cast<int>(before.find('\t')), "a tab in the indentation; indent with spaces"};
}

// What a line begins with, if it is fit for the name of a key.
std::string_view name_of(std::string_view text) {
  const auto is_of_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return text.substr(0, std::find_if_not(text.begin(), text.end(), is_of_name) - text.begin());
}

// "batch_size 32", "batch_size:32", "batch_size = 32", "[training]" and "// a comment", each with its repair.
std::optional<std::string> misspelt(std::string_view text) {
  if (text.starts_with("//")) return "a comment starts with '#'";
  if (text.starts_with('[') && text.find(']') == text.size() - 1 &&
      text.find_first_of("{,:") == std::string_view::npos) {
    return fmt::format("a section is written {}",
                       in_quotes(fmt::format("{}:", trimmed(text.substr(1, text.size() - 2)))));
  }
  const std::string_view name = name_of(text), rest = trimmed(text.substr(name.size()));
  if (name.empty() || !std::isalpha(static_cast<unsigned char>(name[0])) || has_key(text)) return std::nullopt;
  if (rest.empty()) return fmt::format("a colon is missing: write {}", in_quotes(std::string(name) + ":"));
  const auto fault = [&](const char* what, size_t sign) {
    return fmt::format("{}: write {}", what, in_quotes(fmt::format("{}: {}", name, trimmed(rest.substr(sign)))));
  };
  if (rest[0] == ':') return fault("a space is missing after the colon", 1);
  if (rest[0] == '=') return fault("a key and its value are separated by a colon, not by '='", 1);
  constexpr std::string_view kWideColon = "\uFF1A";  // the colon of Chinese and Japanese keyboards
  return fault("a colon is missing", rest.starts_with(kWideColon) ? kWideColon.size() : 0);
}

// The brackets and braces, and the quote, that are open before a place in the text.
struct Open {
  std::vector<Mistake> brackets;
  std::optional<Mistake> quote;
};

Open open_before(const Lines& lines, int last_line, int last_column) {
  Open open;
  for (int line = 0; line <= last_line && line < static_cast<int>(lines.size()); ++line) {
    const std::string_view text = lines[line];
    bool begins_value = true;  // a quote opens only here
    for (int column = 0; column < static_cast<int>(text.size()) && (line < last_line || column < last_column);
         ++column) {
      const char c = text[column];
      if (open.quote) {
        if (c == '\\' && open.quote->what == "\"")
          ++column;
        else if (open.quote->what[0] == c)
          open.quote.reset();
      } else if (begins_value && (c == '"' || c == '\'')) {
        open.quote = Mistake{line, column, std::string(1, c)};
      } else if (c == '[' || c == '{') {
        open.brackets.push_back({line, column, std::string(1, c)});
      } else if ((c == ']' || c == '}') && !open.brackets.empty()) {
        open.brackets.pop_back();
      } else if (c == '#' && (column == 0 || kBlank.find(text[column - 1]) != std::string_view::npos)) {
        break;
      }
      if (kBlank.find(c) == std::string_view::npos)
        begins_value = std::string_view("[{,:-").find(c) != std::string_view::npos;
    }
  }
  return open;
}

std::string place(const Mistake& mistake, int line) {
  return mistake.line == line ? fmt::format("in column {}", mistake.column + 1)
                              : fmt::format("in line {}, column {}", mistake.line + 1, mistake.column + 1);
}

// A list or map in brackets that does not end, or ends with what it did not begin with.
Mistake bracket_mistake(const Lines& lines, int line, int column, bool at_end) {
  const std::vector<Mistake> open = open_before(lines, line, column).brackets;
  if (open.empty())
    return {line, column, fmt::format("there is nothing for '{}' to close; remove it", lines[line].substr(column, 1))};
  const Mistake& innermost = open.back();
  if (at_end) {
    return {line, column,
            fmt::format("'{}' does not close the '{}' {}", lines[line].substr(column, 1), innermost.what,
                        place(innermost, line))};
  }
  const int last = static_cast<int>(lines.size()) - 1;
  if (open_before(lines, last, static_cast<int>(lines[last].size())).brackets.empty()) {
    return {line, column, "a comma is missing before this"};
  }
  return {innermost.line, innermost.column, fmt::format("'{}' is never closed", innermost.what)};
}

// A line that is no deeper than one level of the lines above it, or deeper than one that has a value of its own.
Mistake indentation_mistake(const Lines& lines, int line) {
  const int own = indentation(lines[line]), above = neighbour(lines, line, -1);
  return {line, own,
          fmt::format("wrong indentation: {} spaces here, {} in the line above; keys of one section must start "
                      "in the same column",
                      own, above < 0 ? 0 : indentation(lines[above]))};
}

bool ends_level(const std::string& reason) {
  return reason == YAML::ErrorMsg::END_OF_MAP || reason == YAML::ErrorMsg::END_OF_SEQ;
}

// What is wrong with a value, from the characters at the place or from what yaml-cpp says.
std::string value_mistake(std::string_view at_place, const std::string& reason) {
  if (reason == YAML::ErrorMsg::MAP_VALUE) return "a value with ': ' in it, or ':' at its end, needs quotes";
  if (reason.starts_with(YAML::ErrorMsg::INVALID_ESCAPE))
    return "in double quotes, a backslash starts an escape such as \\n; use single quotes";
  if (const size_t sign = at_place.find_first_of("*&@`%|>!"); sign != std::string_view::npos) {
    return fmt::format("a value that starts with '{}' needs quotes", at_place.substr(sign, 1));
  }
  if (ends_level(reason)) return "unexpected text after the value; inside single quotes, write an apostrophe twice";
  return "this is not YAML; write 'key: value', with the keys of a section below it, indented by two spaces";
}

}  // namespace

Lines lines_of(std::string_view text) {
  Lines lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

std::optional<Mistake> mistake_in(const Lines& lines, int line) {
  if (line < 0 || line >= static_cast<int>(lines.size())) return std::nullopt;
  if (const auto mistake = tab_before(lines, line)) return mistake;
  if (const auto what = misspelt(content(lines[line]))) return Mistake{line, indentation(lines[line]), *what};
  return std::nullopt;
}

Mistake mistake_after(const Lines& lines, int line) {
  const int next = std::max(neighbour(lines, line, 1), line);
  if (const auto mistake = tab_before(lines, next)) return *mistake;
  const std::string_view text = content(lines[next]);
  if (has_key(text) && text.find(':') == name_of(text).size()) return indentation_mistake(lines, next);
  return {next, indentation(lines[next]),
          "this line continues the value above it; write a value on one line, and a colon after a key"};
}

Mistake mistake_of(const Lines& lines, const YAML::Exception& fault) {
  const int last = static_cast<int>(lines.size()) - 1;
  const int line = fault.mark.is_null() ? last : std::min(fault.mark.line, last);
  const int column = fault.mark.is_null() ? 0 : std::min(fault.mark.column, static_cast<int>(lines[line].size()));
  for (const int suspect : {line, neighbour(lines, line, -1)}) {
    if (const auto mistake = mistake_in(lines, suspect)) return *mistake;
  }
  if (const auto quote = open_before(lines, line, column).quote; quote && fault.msg == YAML::ErrorMsg::EOF_IN_SCALAR) {
    return {quote->line, quote->column, "the closing quote is missing on this line"};
  }
  if (fault.msg == YAML::ErrorMsg::FLOW_END) return bracket_mistake(lines, line, column, /*at_end=*/true);
  if (fault.msg == YAML::ErrorMsg::END_OF_MAP_FLOW || fault.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW) {
    return bracket_mistake(lines, line, column, /*at_end=*/false);
  }
  if (ends_level(fault.msg) && column == indentation(lines[line])) return indentation_mistake(lines, line);
  return {line, column, value_mistake(lines[line].substr(column > 0 ? column - 1 : 0, 2), fault.msg)};
}

}  // namespace gpt::config
