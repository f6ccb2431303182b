#include <fmt/format.h>

#include <algorithm>

#include "gpt/config/load.h"
#include "gpt/config/value.h"

namespace gpt::config {
namespace {

std::string title(const std::string& section) {
  if (section.empty()) return "Run";
  if (section == "model") return "Model";
  if (section == "data") return "Data";
  return "Training";
}

std::string default_text(const Option& row) {
  const std::string text = yaml_scalar(row.target);
  return text == "\"\"" ? "" : text;
}

std::string other_spellings(const Option& row, const char* quote) {
  std::string result;
  for (const Alias& alias : row.aliases) {
    result += fmt::format("{}{}{}{}", result.empty() ? "" : ", ", quote, alias.name, quote);
  }
  return result;
}

// One flag of --help, its text wrapped beside it.
std::string flag_line(const std::string& flag, const std::string& help) {
  constexpr size_t kColumn = 36, kWidth = 110;
  std::string result, line = fmt::format("  --{:<{}}", flag, kColumn - 5);
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

std::string help_text(const std::string& program, const std::string& description,
                      const std::vector<ProgramFlag>& program_flags) {
  std::string result = fmt::format("{}\n\nUsage: {} [--config FILE] [--KEY VALUE ...]\n\n", description, program);
  result += flag_line("config FILE", "YAML file to read (also --config_path); flags take precedence over it");
  for (const ProgramFlag& flag : program_flags) {
    result += flag_line(flag.name + (std::holds_alternative<std::string*>(flag.target) ? " VALUE" : ""), flag.help);
  }
  result += flag_line("print-config", "show the effective configuration as YAML");
  result += flag_line("print-reference", "show the reference of all keys, in Markdown");
  result += flag_line("version", "show the versions of this program, LibTorch and CUDA");
  result += flag_line("help", "show this help");
  result +=
      "\nKeys of the configuration with their defaults. On the command line: --KEY VALUE, --KEY=VALUE or\n"
      "--section.KEY VALUE, with - or _. In YAML: each key below its section, indented. [allowed] (other spellings)\n";
  Config defaults;
  std::string section = "-";
  for (const Option& row : options(defaults)) {
    if (row.section != section) {
      section = row.section;
      result += fmt::format("\n{}{}\n", title(section), section.empty() ? "" : " (" + section + ":)");
    }
    std::string help = row.help;
    if (const std::string allowed = allowed_text(row); !allowed.empty()) help += fmt::format(" [{}]", allowed);
    if (!row.aliases.empty()) help += fmt::format(" ({})", other_spellings(row, ""));
    result += flag_line(row.name + " " + default_text(row), help);
  }
  return result;
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
                          allowed_text(row), row.help, other_spellings(row, "`"));
  }
  return result;
}

}  // namespace gpt::config
