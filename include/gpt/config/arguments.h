// The command lines of all programs, over option rows: one parser, one --help. A flag is a row's key, name or alias,
// `--name value` or `--name=value`, '-' and '_' alike; a name of one letter follows a single '-': `-n 5` or `-n5`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/option.h"
#include "gpt/config/setting.h"

namespace gpt::config {

// Rows under a title, as --help shows them.
struct Section {
  std::string title;
  std::vector<Option> rows;
};

std::vector<Option> rows_of(const std::vector<Section>& sections);

// What --help says beside the list of flags.
struct Guide {
  std::vector<std::string> first = {};  // the flags that people need first, by their names
  std::string examples = {};            // a line each
  std::string ending = {};              // what else there is to know, and the exit status
};

struct Program {
  std::string name;
  std::string description;
  std::string usage;  // what follows the name
  std::vector<Section> sections;
  std::string notes = {};  // on how its flags are written
  Guide guide = {};
  // Whether there are arguments that belong to no flag. Without them, those after a flag of a list belong to the list.
  bool takes_words = false;
  // What the first argument may be, where it is a command such as ladder in gpt-bench ladder.
  std::vector<std::string> commands = {};
  // The flag that a file was probably meant for.
  std::function<std::string(const std::string& path)> flag_for = {};
  // What to do instead of giving a flag of that name, which is another program's.
  std::function<std::optional<std::string>(const std::string& name)> advice = {};
  bool says_notes = true;  // otherwise the caller logs Arguments::notes
  bool is_command() const { return name.find(' ') != std::string::npos; }
};

struct Arguments {
  std::vector<Setting> settings;   // as they were given, values not yet checked
  std::vector<std::string> notes;  // on flags that do not count, because they were given again
  std::vector<std::string> words;  // neither a flag nor the value of one, and everything after "--"
};

// Adds --quiet, which it obeys, --help, --version, --manual, --print-completions and --print-man-page; nothing when one of those was answered on standard output. Throws
// gpt::Error(config).
std::optional<Arguments> parse_arguments(Program program, int argc, const char* const* argv);

// The rows that guide.first names, in its order, each under the spelling that it has there.
std::vector<Option> first_rows(const Program& program);

// Wrapped at so many columns.
std::string help_text(const Program& program, int columns);

// The same as a manual page, in troff's man macros (man(7)).
std::string man_page(const Program& program);

enum class Shell { bash, zsh };

// A script that completes the program's command line in a shell: flags, and the values of those that have a fixed set of them; everything
// else is completed as a file's name. That of a command of a program (gpt-bench ladder) is a function, which the script of the program
// itself calls and therefore has to follow.
std::string completion_script(const Program& program, Shell shell);

}  // namespace gpt::config
