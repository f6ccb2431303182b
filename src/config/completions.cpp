#include <fmt/format.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "gpt/config/arguments.h"
#include "gpt/core/text.h"

namespace gpt::config {
namespace {

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string dashed(const std::string& name) { return (name.size() == 1 ? "-" : "--") + name; }

// "gpt-bench ladder" -> "_gpt_bench_ladder"
std::string function_of(const std::string& name) { return "_" + replaced(replaced(name, "-", "_"), " ", "_"); }

// The words that a value may be, separated by spaces; empty where it may be something else.
std::string values_of(const Option& row) {
  if (row.is_switch) return "";
  if (const auto* choice = std::get_if<Choice>(&row.target)) return fmt::format("{}", fmt::join(choice->names, " "));
  if (std::holds_alternative<bool*>(row.target)) return "true false";
  const bool may_be_auto = std::holds_alternative<NumberOrAuto>(row.target) ||
                           std::holds_alternative<FoundNumber>(row.target) ||
                           std::holds_alternative<std::optional<int64_t>*>(row.target);
  return may_be_auto ? "auto" : "";
}

// Every way to write the flags of a row whose value is one of its own values, as patterns of bash's `case`, with '-' for '_'.
std::string patterns_of(const Option& row) {
  std::vector<std::string> names = {row.flag(), row.key()};
  for (const Alias& alias : row.aliases) {
    if (!alias.is_switch()) names.push_back(alias.name);
  }
  for (std::string& name : names) name = dashed(with_dashes(name));
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return fmt::format("{}", fmt::join(names, " | "));
}

// The rows of --help, each flag once. Help may begin with other spellings, such as --data for --text.
std::vector<Option> shown_rows(const Program& program) {
  std::vector<Option> rows = first_rows(program);
  for (Option& row : rows_of(program.sections)) {
    const auto is_same = [&row](const Option& shown) { return shown.flag() == row.flag(); };
    if (std::none_of(rows.begin(), rows.end(), is_same)) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> flags_of(const Program& program) {
  std::vector<std::string> flags;
  for (const Option& row : shown_rows(program)) {
    flags.push_back("--" + row.flag());
    for (const Alias& alias : row.aliases) {
      if (alias.name.size() == 1) flags.push_back("-" + alias.name);
    }
  }
  return flags;
}

std::vector<std::string> keys_with_sections(const std::vector<Option>& rows) {
  std::vector<std::string> keys;
  for (const Option& row : rows) {
    if (!row.section.empty()) keys.push_back("--" + row.key());
  }
  return keys;
}

std::string bash_commands(const Program& program) {
  if (program.commands.empty()) return "";
  return fmt::format(R"(  local commands='{}'
  if ((COMP_CWORD > 1)) && [[ " $commands " == *" ${{COMP_WORDS[1]}} "* ]]; then
    "{}_${{COMP_WORDS[1]}}"
    return
  fi
  [[ $word == -* ]] || values=$commands
)",
                     fmt::join(program.commands, " "), function_of(program.name));
}

// Bash takes "--flag=value" for three words.
constexpr const char* kBashStart = R"({}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} values= flags flag
  COMPREPLY=()
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
)";
constexpr const char* kBashEnd = R"(  if [[ $word != -* ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
    return
  fi
  flags='{}'
{}  for flag in $flags; do
    [[ ${{flag//-/_}} != "${{word//-/_}}"* ]] || COMPREPLY+=("$flag")
  done
}}
)";

std::string bash_script(const Program& program) {
  const std::vector<Option> rows = rows_of(program.sections);
  std::string script = fmt::format(kBashStart, function_of(program.name)), values;
  for (const Option& row : rows) {
    if (const std::string words = values_of(row); !words.empty())
      values += fmt::format("    {}) values='{}' ;;\n", patterns_of(row), words);
  }
  if (!values.empty()) script += fmt::format("  case ${{before//_/-}} in\n{}  esac\n", values);
  script += bash_commands(program);
  const std::vector<std::string> keys = keys_with_sections(rows);
  const std::string dotted =
      keys.empty() ? "" : fmt::format("  [[ $word != *.* ]] || flags='{}'\n", fmt::join(keys, " "));
  script += fmt::format(kBashEnd, fmt::join(flags_of(program), " "), dotted);
  if (program.is_command()) return script;
  return script + fmt::format("complete -o default -F {} {}\n", function_of(program.name), program.name);
}

std::string in_zsh_quotes(const std::string& text) { return "'" + replaced(text, "'", R"('\'')") + "'"; }

// One flag as _arguments takes it: '(-o --output)'{-o+,--output=}'[help]:value:_files'.
std::string zsh_argument(const Option& row) {
  std::string help = replaced(row.help, "\\", "\\\\");
  help = replaced(replaced(help, "[", "\\["), "]", "\\]");
  std::string value;
  if (!row.is_switch) {
    const std::string words = values_of(row);
    const char* colons = std::holds_alternative<bool*>(row.target) ? "::" : ":";  // true need not be written
    value = fmt::format("{}value:{}", colons, words.empty() ? "_files" : "(" + words + ")");
  }
  std::string letters, names;
  for (const Alias& alias : row.aliases) {
    if (alias.name.size() != 1) continue;
    letters += "-" + alias.name + " ";
    names += fmt::format("-{}{},", alias.name, row.is_switch ? "" : "+");
  }
  const std::string flag = fmt::format("--{}{}", row.flag(), row.is_switch ? "" : "="), rest = "[" + help + "]" + value;
  if (std::holds_alternative<std::vector<std::string>*>(row.target)) {
    return names.empty() ? in_zsh_quotes("*" + flag + rest)
                         : fmt::format("'*'{{{}{}}}{}", names, flag, in_zsh_quotes(rest));
  }
  if (names.empty()) return in_zsh_quotes(flag + rest);
  return fmt::format("'({}--{})'{{{}{}}}{}", letters, row.flag(), names, flag, in_zsh_quotes(rest));
}

std::string zsh_script(const Program& program) {
  const std::string function = function_of(program.name);
  // zsh looks for this in the first line of a file, where several scripts may follow each other.
  std::string script = fmt::format("#compdef {}\n{}() {{\n", program.name.substr(0, program.name.find(' ')), function);
  if (!program.commands.empty()) {
    script += fmt::format(
        R"(  local commands=({0})
  if ((CURRENT > 2)) && [[ -n ${{(M)commands:#$words[2]}} ]]; then
    local command=$words[2]
    shift words
    ((CURRENT--))
    "{1}_$command"
    return
  fi
)",
        fmt::join(program.commands, " "), function);
  }
  script += "  _arguments \\\n";
  for (const Option& row : shown_rows(program)) script += "    " + zsh_argument(row) + " \\\n";
  script += fmt::format("    '{}'\n}}\n", program.commands.empty() ? "*:file:_files" : "1:command:($commands)");
  if (program.is_command()) return script;
  // The file may be found by zsh, which takes it for the function's body, or be read by people's own files.
  return script + fmt::format("if [[ $funcstack[1] == _{0} ]]; then {1} \"$@\"; else compdef {1} {0}; fi\n",
                              program.name, function);
}

}  // namespace

std::string completion_script(const Program& program, Shell shell) {
  return shell == Shell::bash ? bash_script(program) : zsh_script(program);
}

}  // namespace gpt::config
