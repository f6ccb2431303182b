#include "gpt/config/arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "gpt/config/manual.h"
#include "gpt/config/suggest.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/terminal.h"
#include "gpt/core/version.h"
#include "stray_words.h"

namespace gpt::config {
namespace {

// A zero byte, which no argument can hold, before each word and after each "--name=". It keeps CLI11 from reading "-.5" as a
// flag, and from taking the next argument where a value is empty.
constexpr char kMark = '\0';

[[noreturn]] void fail(const std::string& message) { throw Error(ExitCode::config, message); }

// A letter after the dashes tells a flag from a negative number, and from "-", which is standard input.
bool is_flag(const std::string& word) {
  const size_t name = word.starts_with("--") ? 2 : word.starts_with("-") ? 1 : word.size();
  return name < word.size() && std::isalpha(static_cast<unsigned char>(word[name]));
}

std::string marked(std::string argument) {
  const bool is_word = !is_flag(argument) && argument != "--";
  const size_t equals = argument.find('=');
  if (is_word || equals != std::string::npos) argument.insert(is_word ? 0 : equals + 1, 1, kMark);
  return argument;
}

std::string unmarked(std::string argument) {
  std::erase(argument, kMark);
  return argument;
}

// "batch-size" and "training.batch-size".
std::vector<std::string> names_of(const Spelling& spelling) {
  const std::string name = spelling.alias ? spelling.alias->name : spelling.option->flag();
  const std::string& section = spelling.option->section;
  if (name.size() == 1 || section.empty() || name.starts_with(section + ".")) return {name};
  return {name, section + "." + name};
}

std::string with_dashes_as(char between, std::string name) {
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '_'; }, between);
  return name;
}

// The names that CLI11 is to know it by: "--batch-size,--batch_size,--training.batch-size,--training.batch_size,".
std::string flags_of(const Spelling& spelling) {
  std::string flags;
  for (const std::string& name : names_of(spelling)) {
    if (name.size() == 1) return "-" + name;
    for (const char between : {'-', '_'}) flags += "--" + with_dashes_as(between, name) + ",";
  }
  return flags;
}

// What the arguments call their flags, but for those of a letter. CLI11 compares each flag that it is to know with all before it: with
// every name of every key that is some millions of comparisons, which take ten milliseconds of each start.
class WrittenNames {
 public:
  explicit WrittenNames(const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments)
      if (argument.starts_with("--")) names_.insert(with_dashes_as('_', argument.substr(2, argument.find('=') - 2)));
  }
  bool may_mean(const Spelling& spelling) const {
    const std::vector<std::string> names = names_of(spelling);
    return std::any_of(names.begin(), names.end(), [this](const std::string& name) {
      return name.size() == 1 || names_.count(with_dashes_as('_', name)) > 0;
    });
  }

 private:
  std::set<std::string> names_;
};

// What CLI11 makes of the arguments, still marked.
struct Scan {
  std::vector<std::pair<Spelling, std::string>> given;  // flags and their values, in their order
  std::vector<std::string> rest;                        // what no flag took
  bool lacks_value = false;                             // the last argument, a flag
  bool asks_for(const std::string& name) const {
    return std::any_of(given.begin(), given.end(), [&](const auto& flag) { return flag.first.option->name == name; });
  }
};

void add_flag(CLI::App& app, const Spelling& spelling, int most_in_list, Scan& scan) {
  const auto take = [spelling, &scan](const std::vector<std::string>& values) {
    for (const std::string& value : values) scan.given.emplace_back(spelling, value);
    return true;
  };
  CLI::Option* flag = app.add_option(flags_of(spelling), take)->trigger_on_parse();
  flag->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (spelling.option->is_switch) {
    flag->expected(0);
  } else if (spelling.alias
                 ? spelling.alias->is_switch() || std::holds_alternative<bool*>(spelling.option->target)
                 : std::holds_alternative<bool*>(spelling.option->target) || !spelling.option->if_true.empty()) {
    flag->expected(0, 1)->default_str("true");
  } else if (std::holds_alternative<std::vector<std::string>*>(spelling.option->target)) {
    flag->expected(1, most_in_list);
  }
}

Scan scanned(const std::vector<Option>& rows, const std::vector<std::string>& arguments, bool takes_words) {
  Scan scan;
  CLI::App app;
  app.set_help_flag();  // --help is a row
  app.allow_extras();
  const int most_in_list = takes_words ? 1 : static_cast<int>(arguments.size());
  const WrittenNames written(arguments);
  const auto add = [&](const Spelling& spelling) {
    if (written.may_mean(spelling)) add_flag(app, spelling, most_in_list, scan);
  };
  for (const Option& row : rows) {
    add({&row, nullptr});
    for (const Alias& alias : row.aliases) add({&row, &alias});
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 takes them
  std::transform(reversed.begin(), reversed.end(), reversed.begin(), marked);
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ArgumentMismatch&) { scan.lacks_value = true; }
  scan.rest = app.remaining();
  return scan;
}

// The key that is called so in another section than the one that was written.
std::optional<std::string> key_elsewhere(const std::vector<Option>& rows, const std::string& written) {
  const size_t dot = written.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string name = normalised(written.substr(dot + 1));
  for (const Option& row : rows) {
    if (!row.section.empty() && find_option(rows, row.section, name).option == &row) return row.key();
  }
  return std::nullopt;
}

// "bias" for "no-bias", where that is something that can be false.
std::optional<std::string> denied_flag(const std::vector<Option>& rows, const std::string& name) {
  const std::string typed = normalised(name);
  if (!typed.starts_with("no_")) return std::nullopt;
  const std::string denied = typed.substr(3);
  for (const Option& row : rows) {
    const Spelling spelling = find_option(rows, row.section, denied);
    if (spelling.option != &row || row.is_switch) continue;
    const bool can_be_false = std::holds_alternative<bool*>(row.target) || !row.if_false.empty();
    if (can_be_false || (spelling.alias && spelling.alias->is_switch())) return denied;
  }
  return std::nullopt;
}

std::string unknown(const Program& program, const std::string& flag) {
  const std::string name = flag.substr(flag.find_first_not_of('-')), what = "unknown flag " + in_quotes(flag);
  const std::vector<Option> rows = rows_of(program.sections);
  if (const auto denied = denied_flag(rows, name)) return fmt::format("{}; write --{} false", what, *denied);
  if (const auto advice = program.advice ? program.advice(name) : std::nullopt)
    return fmt::format("{}: {}", what, *advice);
  if (const auto key = key_elsewhere(rows, name)) return fmt::format("{}; did you mean '--{}'?", what, *key);
  std::vector<std::string> names;
  for (const Option& row : rows) {
    names.push_back(row.name);
    for (const Alias& alias : row.aliases) names.push_back(alias.name);
    if (!row.section.empty()) names.push_back(row.key());
  }
  std::erase_if(names, [](const std::string& letter) { return letter.size() == 1; });
  const auto near = did_you_mean(name, names);
  return near ? fmt::format("{}; did you mean '--{}'?", what, *near) : what + "; --help lists all flags";
}

std::vector<std::string> words_of(const Program& program, const std::vector<std::string>& arguments, const Scan& scan) {
  std::vector<std::string> words;
  bool only_words = false;
  for (const std::string& argument : scan.rest) {
    const std::string word = unmarked(argument);
    if (!only_words && word == "--") {
      only_words = true;
    } else if (!only_words && !argument.starts_with(kMark)) {
      fail(unknown(program, word.substr(0, word.find('=', 2))));
    } else if (program.takes_words) {
      words.push_back(word);
    } else {
      const auto after = std::find(arguments.rbegin(), arguments.rend(), word).base();  // an earlier one may be a value
      fail(stray_word_fault(arguments, static_cast<size_t>(after - arguments.begin() - 1), program.flag_for));
    }
  }
  return words;
}

// The last value counts where a flag is given again, so that a script can add it to a command; one that takes a list has all of them.
void drop_earlier(std::vector<Setting>& settings, const Spelling& spelling, const Setting& last,
                  std::vector<std::string>& notes) {
  if (std::holds_alternative<std::vector<std::string>*>(spelling.option->target)) return;
  std::erase_if(settings, [&](const Setting& earlier) {
    if (earlier.key != spelling.option->key()) return false;
    if (earlier.text == last.text) return true;
    notes.push_back(
        earlier.written == last.written
            ? fmt::format("{} is given again: {} counts, not {}", last.written, last.text, earlier.text)
            : fmt::format("{} {} counts, not {} {} before it", last.written, last.text, earlier.written, earlier.text));
    return true;
  });
}

std::vector<Setting> settings_of(const Scan& scan, std::vector<std::string>& notes) {
  std::vector<Setting> settings;
  for (const auto& [spelling, value] : scan.given) {
    const std::string name = spelling.alias ? spelling.alias->name : spelling.option->key();
    const std::string flag = (name.size() == 1 ? "-" : "--") + name;
    Setting setting{.text = unmarked(value), .written = flag, .where = flag};
    if (spelling.option->is_switch && value != "true") {
      fail(fmt::format("{} is a switch and takes no value, got {}", flag, in_quotes(setting.text)));
    }
    if (std::holds_alternative<Structure>(spelling.option->target)) {
      setting.node = std::make_shared<const Node>(parse_node(setting.text, flag));
    }
    drop_earlier(settings, spelling, setting, notes);
    add_setting(settings, spelling, std::move(setting));
  }
  return settings;
}

// What every program answers beside its own work.
struct CommonOptions {
  bool help = false, version = false, man = false, quiet = false;
  Shell shell = Shell::bash;
  std::string topic;

  Option manual() {
    return {.name = "manual",
            .target = &topic,
            .help = "show a page of the documentation, such as run, plan, prepare or configs"};
  }
  Option completions() {
    return {.name = "print-completions",
            .target = choice(shell, {{"bash", Shell::bash}, {"zsh", Shell::zsh}}),
            .help = "show a script that completes the command line of this program in that shell"};
  }
  Section section() {
    return {"Other",
            {switch_row("quiet", quiet, "say nothing but warnings, errors and what was asked for", {{"q"}}),
             switch_row("version", version, "show the versions of this program, LibTorch and CUDA"), manual(),
             completions(), switch_row("print-man-page", man, "show this help as a manual page, for man(1)"),
             switch_row("help", help, "show this help", {{"h"}})}};
  }
};

// Whatever else the command line has.
bool prints_help(const Program& program, const Scan& scan) {
  if (scan.asks_for("help")) {
    print(help_text(program, reading_columns(STDOUT_FILENO)));
  } else if (scan.asks_for("print-man-page")) {
    print(man_page(program));
  } else {
    return false;
  }
  return true;
}

void set_alone(const Option& option, std::vector<Setting>& settings) {
  std::erase_if(settings, [&](const Setting& setting) { return setting.key != option.key(); });
  apply_settings(settings, {option});
}

// Instead of what the program does.
bool prints_page(const Program& program, const Scan& scan, std::vector<Setting> settings) {
  CommonOptions common;
  if (scan.asks_for("print-completions")) {
    set_alone(common.completions(), settings);
    print(completion_script(program, common.shell));
  } else if (scan.asks_for("manual")) {
    set_alone(common.manual(), settings);
    print(manual(common.topic, reading_columns(STDOUT_FILENO)));
  } else if (scan.asks_for("version")) {
    print(version_text(program.name.substr(0, program.name.find(' '))) + "\n");  // without a verb
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::vector<Option> rows_of(const std::vector<Section>& sections) {
  std::vector<Option> rows;
  for (const Section& section : sections) rows.insert(rows.end(), section.rows.begin(), section.rows.end());
  return rows;
}

std::optional<Arguments> parse_arguments(Program program, int argc, const char* const* argv) {
  CommonOptions common;
  program.sections.push_back(common.section());
  const std::vector<Option> rows = rows_of(program.sections);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const Scan scan = scanned(rows, arguments, program.takes_words);
  if (prints_help(program, scan)) return std::nullopt;
  Arguments result{.settings = {}, .notes = {}, .words = words_of(program, arguments, scan)};
  if (scan.lacks_value) fail(arguments.back() + " needs a value");
  result.settings = settings_of(scan, result.notes);
  if (prints_page(program, scan, result.settings)) return std::nullopt;
  if (scan.asks_for("quiet")) log::be_quiet();
  std::erase_if(result.settings, [](const Setting& setting) { return setting.key == "quiet"; });
  if (program.says_notes) {
    for (const std::string& note : result.notes) log::info("Note: " + note);
  }
  return result;
}

}  // namespace gpt::config
