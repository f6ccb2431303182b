#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>

#include "foreign.h"
#include "gpt/config/load.h"
#include "gpt/config/setting.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/version.h"
#include "limits.h"
#include "stray_words.h"

namespace gpt::config {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ExitCode::config, message); }

// "--a-b,--a_b": CLI11 does not take '-' for '_'.
std::string both_spellings(const std::string& name) {
  std::string dashed = name, underscored = name;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  std::replace(underscored.begin(), underscored.end(), '-', '_');
  return dashed == underscored ? "--" + name : fmt::format("--{},--{}", dashed, underscored);
}

// The arguments, last first, as CLI11 takes them. "--key=" becomes the key and an empty value: CLI11 would take the
// next argument for the value.
std::vector<std::string> reversed_arguments(int argc, const char* const* argv) {
  std::vector<std::string> result;
  for (int i = argc - 1; i > 0; --i) {
    std::string argument = argv[i];
    if (argument.size() > 3 && argument.compare(0, 2, "--") == 0 && argument.find('=') == argument.size() - 1) {
      argument.pop_back();
      result.emplace_back();
    }
    result.push_back(std::move(argument));
  }
  return result;
}

// What CLI11 made of the arguments: the program's own flags by name, the keys as settings.
class Flags {
 public:
  explicit Flags(const std::vector<Option>& rows) {
    app_.set_help_flag();
    app_.allow_extras();
    for (const Option& row : rows) {
      add_key({&row, nullptr});
      for (const Alias& alias : row.aliases) add_key({&row, &alias});
    }
    for (const Option& row : rows) names_.push_back(row.key());
  }

  void add_switch(const std::string& name) {
    app_.add_flag((name == "help" ? "-h," : "") + both_spellings(name));
    names_.push_back(name);
  }
  void add_value(const std::string& name, const std::string& other_name = "") {
    add_option(both_spellings(name) + (other_name.empty() ? "" : "," + both_spellings(other_name)));
    names_.push_back(name);
  }

  void parse(int argc, const char* const* argv) {
    try {
      std::vector<std::string> arguments = reversed_arguments(argc, argv);
      app_.parse(arguments);
    } catch (const CLI::ParseError&) {
      // A flag takes the next argument for its value, whatever it is: only the last one can be left without.
      fail(fmt::format("{} needs a value", in_quotes(argv[argc - 1])));
    }
  }

  void refuse_unknown(int argc, const char* const* argv) const {
    const std::vector<std::string> extras = app_.remaining();
    if (extras.empty()) return;
    const std::string& argument = extras.front();
    if (argument.size() < 2 || argument[0] != '-') {
      fail(stray_word_fault(argc, argv, argument, [](const std::string& path) {
        return path.ends_with(".yaml") || path.ends_with(".yml") ? "--config" : "--data";
      }));
    }
    const std::string flag = argument.substr(0, argument.find('='));
    const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    if (const auto advice = advice_for(name.substr(name.rfind('.') + 1), /*in_yaml=*/false)) {
      fail(fmt::format("unknown flag {}: {}", in_quotes(flag), *advice));
    }
    const auto near = did_you_mean(name, names_);
    fail(fmt::format("unknown flag {}{}", in_quotes(flag),
                     near ? fmt::format("; did you mean '--{}'?", *near) : "; --help lists all flags"));
  }

  bool has(const std::string& name) const { return app_.count("--" + name) > 0; }

  std::string value(const std::string& name) const {
    const std::vector<std::string> values = app_.get_option("--" + name)->results();
    if (values.size() > 1) fail(fmt::format("--{} is given twice; keep one", name));
    return values.empty() ? "" : values.front();
  }

  std::vector<Setting> settings() const {
    std::vector<Setting> result;
    for (const KeyFlag& flag : keys_) {
      for (const std::string& text : flag.option->results()) {
        Setting setting{.text = text, .written = flag.name, .where = flag.name};
        if (std::holds_alternative<std::vector<Stage>*>(flag.spelling.option->target)) {
          setting.node = std::make_shared<const Node>(parse_node(text, flag.name));
        }
        add_setting(result, flag.spelling, std::move(setting));
      }
    }
    return result;
  }

 private:
  struct KeyFlag {
    Spelling spelling;
    std::string name;  // as messages show it: --training.batch_size
    const CLI::Option* option;
  };

  CLI::Option* add_option(const std::string& names) {
    return app_.add_option(names)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  void add_key(const Spelling& spelling) {
    const std::string& section = spelling.option->section;
    const std::string& name = spelling.alias ? spelling.alias->name : spelling.option->name;
    const std::string full = section.empty() ? name : section + "." + name;
    CLI::Option* option =
        add_option(section.empty() ? both_spellings(name) : both_spellings(full) + "," + both_spellings(name));
    if (is_switch(spelling)) option->expected(0, 1)->default_str("true");
    keys_.push_back({spelling, "--" + (spelling.alias ? name : full), option});
    names_.push_back(name);
  }

  // Whether the flag alone means true.
  static bool is_switch(const Spelling& spelling) {
    return (spelling.alias && spelling.alias->is_switch()) || std::holds_alternative<bool*>(spelling.option->target);
  }

  CLI::App app_;
  std::vector<KeyFlag> keys_;
  std::vector<std::string> names_;
};

// Keys of which only one may be set: a flag for one replaces what the file chose, together with what describes it.
void drop_replaced(std::vector<Setting>& from_file, const std::vector<Setting>& from_flags) {
  using Keys = std::vector<std::string>;
  static const std::pair<Keys, Keys> kRivals[] = {
      {{"data.text", "data.dataset", "data.bin"}, {"data.text", "data.dataset", "data.bin", "data.validation_bin", "data.metadata"}},
      {{"training.epochs", "training.max_steps"}, {"training.epochs", "training.max_steps"}},
  };
  const auto is_one_of = [](const Keys& keys) {
    return [&keys](const Setting& setting) { return std::find(keys.begin(), keys.end(), setting.key) != keys.end(); };
  };
  for (const auto& [chosen, replaced] : kRivals) {
    if (std::any_of(from_flags.begin(), from_flags.end(), is_one_of(chosen))) {
      from_file.erase(std::remove_if(from_file.begin(), from_file.end(), is_one_of(replaced)), from_file.end());
    }
  }
}

// The last part of a path up to its first '.', fit for the name of a folder; empty where nothing is left.
std::string name_of(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::string name = path.substr(path.rfind('/') + 1);
  name = name.substr(0, name.find('.', 1));
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c >= 0x80; };
  for (char& c : name) {
    if (!is_plain(static_cast<unsigned char>(c))) c = '_';
  }
  return name.find_first_not_of('_') == std::string::npos ? "" : name;
}

}  // namespace

std::string output_folder(const DataConfig& data, const std::string& config_path) {
  std::string name = name_of(config_path);
  if (name.empty()) name = name_of(data.text);
  if (name.empty()) name = name_of(data.bin);
  if (name.empty() && data.dataset == DatasetName::shakespeare) name = "shakespeare";
  return "models/" + (name.empty() ? "run" : name);
}

CommandLine parse_command_line(int argc, const char* const* argv, const std::string& program,
                               const std::string& description, const std::vector<ProgramFlag>& program_flags,
                               const Completion& complete) {
  CommandLine result;
  const std::vector<Option> rows = options(result.config);
  Flags flags(rows);
  flags.add_value("config", "config_path");
  for (const char* name : {"help", "version", "print-config", "print-reference"}) flags.add_switch(name);
  for (const ProgramFlag& flag : program_flags) {
    std::holds_alternative<bool*>(flag.target) ? flags.add_switch(flag.name) : flags.add_value(flag.name);
  }
  flags.parse(argc, argv);

  const auto answer = [&](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    result.handled = true;
    return result;
  };
  if (flags.has("help")) return answer(help_text(program, description, program_flags));
  flags.refuse_unknown(argc, argv);
  if (flags.has("version")) return answer(version_text() + "\n");
  if (flags.has("print-reference")) return answer(reference_markdown());

  for (const ProgramFlag& flag : program_flags) {
    if (const auto* on = std::get_if<bool*>(&flag.target)) **on = flags.has(flag.name);
    if (const auto* text = std::get_if<std::string*>(&flag.target)) **text = flags.value(flag.name);
  }
  result.config_path = flags.value("config");
  std::vector<Setting> settings;
  if (flags.has("config")) {
    settings = yaml_settings(read_file(result.config_path, ExitCode::config, SizeLimit{"a configuration", kMostBytes}),
                             result.config_path);
  }
  const std::vector<Setting> flag_settings = flags.settings();
  drop_replaced(settings, flag_settings);
  settings.insert(settings.end(), flag_settings.begin(), flag_settings.end());
  result.origins = apply_settings(settings, result.config);
  if (complete) complete(result.config, result.origins);
  if (result.config.output_dir == kAutomaticFolder) result.config.output_dir = output_folder(result.config.data, result.config_path);
  validate(result.config, result.config_path.empty() ? program : result.config_path, result.origins);
  if (flags.has("print-config")) return answer(dump(result.config));
  return result;
}

}  // namespace gpt::config
