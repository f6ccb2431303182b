#include "gpt/config/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <utility>

#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "gpt/core/version.h"
#include "stray_words.h"
#include "suggest.h"

namespace gpt::config {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ExitCode::config, message); }

void show(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// A letter after the dashes tells a flag from a negative number, and from "-", which is standard input.
bool is_flag(const std::string& word) {
  const size_t name = word.starts_with("--") ? 2 : word.starts_with("-") ? 1 : word.size();
  return name < word.size() && std::isalpha(static_cast<unsigned char>(word[name]));
}

std::string name_of(const std::string& flag) { return flag.substr(std::min(flag.find_first_not_of('-'), flag.size())); }

bool is_list(const Option& row) { return std::holds_alternative<std::vector<std::string>*>(row.target); }

// Whether the flag alone means true.
bool stands_alone(const Spelling& spelling) {
  return (spelling.alias && spelling.alias->is_switch()) || std::holds_alternative<bool*>(spelling.option->target);
}

class Parser {
 public:
  Parser(const Program& program, int argc, const char* const* argv)
      : program_(program), arguments_(argv + 1, argv + argc), rows_(rows_of(program.sections)) {
    while (next_ < arguments_.size()) take(arguments_[next_++]);
  }

  bool asks_for(const char* name) const {
    return std::any_of(given_.begin(), given_.end(), [&](const Given& given) { return given.spelling.option->name == name; });
  }

  Arguments result() && {
    if (!fault_.empty()) fail(fault_);
    Arguments result{.settings = {}, .words = std::move(words_)};
    for (Given& given : given_) {
      if (std::holds_alternative<Structure>(given.spelling.option->target)) {
        given.setting.node = std::make_shared<const Node>(parse_node(given.setting.text, given.setting.where));
      }
      add_setting(result.settings, given.spelling, std::move(given.setting));
    }
    return result;
  }

 private:
  struct Given {
    Spelling spelling;
    Setting setting;
  };

  void take(const std::string& word) {
    if (word == "--") {
      while (next_ < arguments_.size()) take_word(arguments_[next_++]);
    } else if (is_flag(word)) {
      take_flag(word);
    } else {
      take_word(word);
    }
  }

  void take_flag(const std::string& word) {
    std::string flag = word.substr(0, word.find('='));
    std::optional<std::string> value;
    if (flag.size() < word.size()) value = word.substr(flag.size() + 1);
    if (!word.starts_with("--") && word.size() > 2 && find(word.substr(1, 1)).option) {  // -n5
      flag = word.substr(0, 2);
      value = word.substr(2);
    }
    const Spelling spelling = find(word.starts_with("--") || flag.size() == 2 ? name_of(flag) : "");
    if (!spelling.option) return note(unknown(flag));
    if (spelling.option->is_switch) {
      if (value) note(fmt::format("{} is a switch and takes no value, got {}", flag, in_quotes(*value)));
      value = "true";
    } else if (!value && next_ < arguments_.size() && !(stands_alone(spelling) && arguments_[next_].starts_with("-"))) {
      value = arguments_[next_++];
    } else if (!value && stands_alone(spelling)) {
      value = "true";
    } else if (!value) {
      return note(flag + " needs a value");
    }
    add(spelling, *value);
  }

  void add(const Spelling& spelling, const std::string& value) {
    const std::string name = spelling.alias ? spelling.alias->name : spelling.option->key();
    const std::string written = (name.size() == 1 ? "-" : "--") + name;
    given_.push_back({spelling, {.text = value, .written = written, .where = written}});
    open_list_ = is_list(*spelling.option) ? spelling : Spelling{};
  }

  void take_word(const std::string& word) {
    if (program_.takes_words) {
      words_.push_back(word);
    } else if (open_list_.option) {
      add(open_list_, word);
    } else {
      note(stray_word_fault(arguments_, next_ - 1, program_.flag_for));
    }
  }

  // The option that the name of a flag spells.
  Spelling find(std::string name) const {
    std::replace(name.begin(), name.end(), '-', '_');
    const auto is_meant = [&name](std::string spelling) {
      std::replace(spelling.begin(), spelling.end(), '-', '_');
      return spelling == name;
    };
    for (const Option& row : rows_) {
      if (is_meant(row.key()) || is_meant(row.name)) return {&row, nullptr};
      for (const Alias& alias : row.aliases) {
        if (is_meant(alias.name) || is_meant(row.section + "." + alias.name)) return {&row, &alias};
      }
    }
    return {};
  }

  std::string unknown(const std::string& flag) const {
    const std::string name = name_of(flag), what = "unknown flag " + in_quotes(flag);
    if (const auto advice = program_.advice ? program_.advice(name) : std::nullopt) return fmt::format("{}: {}", what, *advice);
    std::vector<std::string> names;
    for (const Option& row : rows_) {
      names.push_back(row.name);
      for (const Alias& alias : row.aliases) names.push_back(alias.name);
      if (!row.section.empty()) names.push_back(row.key());
    }
    std::erase_if(names, [](const std::string& letter) { return letter.size() == 1; });
    const auto near = did_you_mean(name, names);
    return near ? fmt::format("{}; did you mean '--{}'?", what, *near) : what + "; --help lists all flags";
  }

  // The first fault counts, unless help is asked for.
  void note(const std::string& fault) {
    if (fault_.empty()) fault_ = fault;
  }

  const Program& program_;
  const std::vector<std::string> arguments_;
  const std::vector<Option> rows_;
  size_t next_ = 0;
  std::vector<Given> given_;
  std::vector<std::string> words_;
  Spelling open_list_;  // words that follow belong to it
  std::string fault_;
};

}  // namespace

std::vector<Option> rows_of(const std::vector<Section>& sections) {
  std::vector<Option> rows;
  for (const Section& section : sections) rows.insert(rows.end(), section.rows.begin(), section.rows.end());
  return rows;
}

std::optional<Arguments> parse_arguments(Program program, int argc, const char* const* argv) {
  bool help = false, version = false;
  program.sections.push_back({"Other", {switch_row("version", version, "show the versions of this program, LibTorch and CUDA"),
                                        switch_row("help", help, "show this help", {{"h"}})}});
  Parser parser(program, argc, argv);
  if (parser.asks_for("help")) {
    show(help_text(program));
    return std::nullopt;
  }
  const bool asks_for_version = parser.asks_for("version");
  Arguments arguments = std::move(parser).result();
  if (!asks_for_version) return arguments;
  show(version_text() + "\n");
  return std::nullopt;
}

}  // namespace gpt::config
