#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/arguments.h"
#include "gpt/config/load.h"
#include "gpt/config/value.h"

namespace gpt::config {
namespace {

std::string default_text(const Option& row) {
  const std::string text = yaml_scalar(row.target);
  return text == "\"\"" ? "" : text;
}

std::string spellings(const std::vector<Alias>& aliases, const char* quote) {
  std::string result;
  for (const Alias& alias : aliases)
    result += fmt::format("{}{}{}{}", result.empty() ? "" : ", ", quote, alias.name, quote);
  return result;
}

// "  -n, --max-new-tokens 200": a switch takes no value, and what has no default shows where its value goes.
std::string flag_of(const Option& row) {
  std::string names;
  for (const Alias& alias : row.aliases) {
    if (alias.name.size() == 1) names += "-" + alias.name + ", ";
  }
  names += "--" + row.flag();
  if (row.is_switch) return names;
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

// One flag of --help, its text wrapped beside it.
std::string help_line(const Option& row) {
  constexpr size_t kColumn = 36, kWidth = 110;
  const std::string help = explanation_of(row);
  std::string result, line = fmt::format("  {:<{}}", flag_of(row), kColumn - 3);
  size_t start = 0;
  while (start < help.size()) {
    const size_t end = std::min(help.find(' ', start), help.size());
    if (line.size() + 1 + end - start > kWidth) {
      result += line + "\n";
      line = std::string(kColumn - 1, ' ');
    }
    line += " " + help.substr(start, end - start);
    start = end + 1;
  }
  return result + line + "\n";
}

}  // namespace

std::string help_text(const Program& program) {
  std::string result = fmt::format(
      "{}\n\nUsage: {} {}\n\n"
      "A flag is written --flag VALUE or --flag=VALUE, with - or _ between its words. Each is shown with its default,\n"
      "its [range or choices] and its (other spellings).\n",
      program.description, program.name, program.usage);
  for (const Section& section : program.sections) {
    result += section.title.empty() ? "\n" : fmt::format("\n{}\n", section.title);
    for (const Option& row : section.rows) result += help_line(row);
  }
  return program.footer.empty() ? result : fmt::format("{}\n{}", result, program.footer);
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
  return result;
}

}  // namespace gpt::config
