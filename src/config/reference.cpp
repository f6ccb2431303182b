#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/arguments.h"
#include "gpt/config/load.h"
#include "gpt/config/rules.h"
#include "gpt/config/value.h"
#include "gpt/core/format.h"
#include "row_text.h"

namespace gpt::config {
namespace {

std::string default_text(const Option& row) {
  const bool is_word = std::holds_alternative<Choice>(row.target);
  const std::string text = is_word ? value_text(row.target) : yaml_scalar(row.target);
  return text == "\"\"" ? "" : text;
}

std::string spellings(const std::vector<Alias>& aliases, const char* quote) {
  std::string result;
  for (const Alias& alias : aliases)
    result += fmt::format("{}{}{}{}", result.empty() ? "" : ", ", quote, alias.name, quote);
  return result;
}

// One flag of --help with its text beside it, or below it where a terminal is narrow.
std::string help_line(const Option& row, int columns) {
  constexpr int kColumn = 36, kBelow = 8;
  const std::string flag = "  " + flag_of(row), help = explanation_of(row);
  if (columns < 2 * kColumn) return wrap_text(fmt::format("{}\n{:{}}{}\n", flag, "", kBelow, help), columns, kBelow);
  return wrap_text(fmt::format("{:<{}} {}\n", flag, kColumn - 1, help), columns, kColumn);
}

std::string list_of(const Section& section, int columns) {
  std::string list = section.title.empty() ? "\n" : wrap_text(fmt::format("\n{}\n", section.title), columns, 0);
  for (const Option& row : section.rows) list += help_line(row, columns);
  return list;
}

}  // namespace

std::string flag_of(const Option& row) {
  std::string names;
  for (const Alias& alias : row.aliases) {
    if (alias.name.size() == 1) names += "-" + alias.name + ", ";
  }
  names += "--" + row.flag();
  if (row.is_switch) return names;
  if (std::holds_alternative<std::string*>(row.target) && !row.if_true.empty())
    return fmt::format("{} [{}]", names, row.if_true);
  const std::string value = default_text(row);
  return fmt::format("{} {}", names, value.empty() ? "VALUE" : value);
}

std::string explanation_of(const Option& row) {
  std::string text = row.help;
  if (const std::string allowed = allowed_text(row); !allowed.empty()) text += fmt::format(" [{}]", allowed);
  std::vector<Alias> words = row.aliases;
  std::erase_if(words, [](const Alias& alias) { return alias.name.size() == 1; });
  if (!words.empty()) text += fmt::format(" ({})", spellings(words, ""));
  return text;
}

std::vector<Option> first_rows(const Program& program) {
  std::vector<Option> found;
  for (const std::string& spelled : program.guide.first) {
    for (Option row : rows_of(program.sections)) {
      const auto alias = std::find_if(row.aliases.begin(), row.aliases.end(),
                                      [&](const Alias& other) { return other.name == spelled; });
      if (alias != row.aliases.end()) std::swap(row.name, alias->name);
      if (row.name == spelled) found.push_back(std::move(row));
    }
  }
  return found;
}

std::string help_text(const Program& program, int columns) {
  constexpr int kIndent = 4;
  const Guide& guide = program.guide;
  const auto wrapped = [&](const std::string& text, int indent) { return wrap_text(text, columns, indent); };
  std::string result =
      wrapped(fmt::format("{}\n\nUsage: {} {}\n", program.description, program.name, program.usage), 0);
  if (!guide.first.empty()) result += list_of({"The flags that people need first", first_rows(program)}, columns);
  if (!guide.examples.empty()) result += wrapped("\nExamples\n" + guide.examples, kIndent);
  result += wrapped(
      fmt::format("\nA flag is written --flag VALUE or --flag=VALUE, with - or _ between its words. Each is shown "
                  "with its default, its [range or choices] and its (other spellings).{}\n",
                  guide.first.empty() ? "" : " All flags follow."),
      0);
  if (!program.notes.empty()) result += wrapped(program.notes, 0);
  for (const Section& section : program.sections) result += list_of(section, columns);
  return guide.ending.empty() ? result : result + wrapped("\n" + guide.ending, kIndent);
}

std::string reference_markdown() {
  Config defaults;
  std::string result, section = "-";
  for (const Option& row : options(defaults)) {
    if (row.section != section) {
      section = row.section;
      result +=
          fmt::format("{}### {}\n\n", result.empty() ? "" : "\n", section.empty() ? "Top level" : "`" + section + ":`");
      result += "| key | default | allowed | meaning | other spellings |\n| --- | --- | --- | --- | --- |\n";
    }
    const std::string value = default_text(row);
    result += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.name, value.empty() ? "" : "`" + value + "`",
                          allowed_text(row), row.help, spellings(row.aliases, "`"));
  }
  return result + "\n" + rules_markdown();
}

}  // namespace gpt::config
