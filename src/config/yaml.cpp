// YAML as a stream of events, not as yaml-cpp's tree: duplicates stay visible, every value keeps its position, nothing
// nests deeper than section and key, and hostile input is refused before it can recurse.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "gpt/config/load.h"
#include "gpt/config/setting.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"

namespace gpt::config {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

class SettingReader : public YAML::EventHandler {
 public:
  SettingReader(std::string_view yaml, const std::string& origin)
      : yaml_(yaml), origin_(origin), rows_(options(defaults_)) {
    for (size_t i = 0; i < yaml.size(); ++i) {
      if (yaml[i] == '\n') line_starts_.push_back(i + 1);
    }
    for (const Option& row : rows_) {
      if (!row.section.empty() && !is_section(row.section)) sections_.push_back(row.section);
    }
  }

  std::vector<Setting> settings;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail(mark, "one document per file: nothing may follow the first");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (depth_ == 0) return;  // an empty file: all defaults
    if (!key_) fail(mark, "a value without a key");
    if (depth_ == 1 && is_section(key_->text)) {
      open_section();  // a section whose keys are all commented out
    } else {
      spelling();
      fail(key_->mark, fmt::format("{} has no value; leave the line out for the default", in_quotes(key_->text)));
    }
    key_.reset();
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (depth_ == 0) fail(mark, fmt::format("expected lines of 'key: value', got {}", in_quotes(value)));
    check_closed_quote(mark);
    if (!key_) {
      key_ = Scalar{value, mark, false};
      return;
    }
    const Scalar scalar{value, mark, tag != "?"};
    if (anchor != YAML::NullAnchor) anchors_[anchor] = scalar;
    take(scalar);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (!key_ || found == anchors_.end()) fail(mark, "an alias may only stand for a plain value");
    take({found->second.text, mark, found->second.is_quoted});
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    if (key_) spelling_or_section();
    fail(mark, key_ ? fmt::format("{} takes one value, not a list", in_quotes(key_->text))
                    : "expected lines of 'key: value', got a list");
  }
  void OnSequenceEnd() override {}

  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    if (depth_ > 0) {
      if (!key_) fail(mark, "a key must be a plain word");
      if (depth_ > 1 || !is_section(key_->text)) {
        spelling();
        fail(mark, fmt::format("{} takes one value, not keys of its own", in_quotes(key_->text)));
      }
      open_section();
      key_.reset();
    }
    ++depth_;
  }
  void OnMapEnd() override {
    if (--depth_ == 1) section_.clear();
  }

 private:
  struct Scalar {
    std::string text;
    YAML::Mark mark;
    bool is_quoted;
  };

  std::string position(const YAML::Mark& mark) const {
    return mark.is_null() ? origin_ : fmt::format("{}:{}:{}", origin_, mark.line + 1, mark.column + 1);
  }
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw Error(ExitCode::config, fmt::format("{}: {}", position(mark), what));
  }
  bool is_section(const std::string& name) const {
    return std::find(sections_.begin(), sections_.end(), name) != sections_.end();
  }

  void open_section() {
    section_ = key_->text;
    const auto [first, is_new] = opened_.try_emplace(section_, position(key_->mark));
    if (!is_new)
      fail(key_->mark, fmt::format("section '{}' is already there at {}; join them", section_, first->second));
  }

  void take(const Scalar& value) {
    if (depth_ == 1 && is_section(key_->text)) {
      fail(value.mark,
           fmt::format("'{}' is a section, got {}; its keys go below it, indented", key_->text, in_quotes(value.text)));
    }
    add_setting(settings, spelling(),
                {.text = value.text,
                 .quoted = value.is_quoted,
                 .written = position(key_->mark),
                 .where = position(value.mark)});
    key_.reset();
  }

  void spelling_or_section() const {
    if (depth_ != 1 || !is_section(key_->text)) spelling();
  }

  // The option of the pending key, or the fault of an unknown key.
  Spelling spelling() const {
    const std::string& name = key_->text;
    const Spelling found = find_option(rows_, section_, name);
    if (!found.option) fail(key_->mark, unknown_key(name));
    return found;
  }

  std::string unknown_key(const std::string& name) const {
    const auto place = [](const std::string& section) {
      return section.empty() ? "the top level" : "'" + section + "'";
    };
    if (is_section(name))
      return fmt::format("section '{}' must stand at the top level, without spaces before it", name);
    for (const Option& row : rows_) {
      if (find_option(rows_, row.section, name).option)
        return fmt::format("'{}' belongs to {}", name, place(row.section));
    }
    const std::string what =
        fmt::format("unknown key {}{}", in_quotes(name), section_.empty() ? "" : " in " + place(section_));
    std::vector<std::string> here, elsewhere;
    for (const Option& row : rows_) (row.section == section_ ? here : elsewhere).push_back(row.name);
    if (section_.empty()) here.insert(here.end(), sections_.begin(), sections_.end());
    for (const Option& row : rows_) {
      for (const Alias& alias : row.aliases) (row.section == section_ ? here : elsewhere).push_back(alias.name);
    }
    if (const auto near = did_you_mean(name, here)) return fmt::format("{}; did you mean '{}'?", what, *near);
    if (const auto near = did_you_mean(name, elsewhere)) {
      for (const Option& row : rows_) {
        if (find_option(rows_, row.section, *near).option)
          return fmt::format("{}; did you mean '{}' in {}?", what, *near, place(row.section));
      }
    }
    return what + "; --help lists all keys";
  }

  // yaml-cpp reads on past a missing closing quote, to the next quote or the end of the file.
  void check_closed_quote(const YAML::Mark& mark) const {
    if (mark.is_null() || mark.line >= static_cast<int>(line_starts_.size())) return;
    const size_t start = line_starts_[mark.line];
    const std::string_view line = yaml_.substr(start, yaml_.find('\n', start) - start);
    if (mark.column >= line.size()) return;
    const char quote = line[mark.column];
    if (quote != '"' && quote != '\'') return;
    for (size_t i = mark.column + 1; i < line.size(); ++i) {
      if (line[i] == quote) return;
      if (line[i] == '\\' && quote == '"') ++i;
    }
    fail(mark, "the closing quote is missing on this line");
  }

  std::string_view yaml_;
  std::vector<size_t> line_starts_ = {0};
  std::string origin_;
  Config defaults_;
  std::vector<Option> rows_;
  std::vector<std::string> sections_;
  Origins opened_;
  std::map<YAML::anchor_t, Scalar> anchors_;
  std::optional<Scalar> key_;
  std::string section_;
  int depth_ = 0;  // 1: among sections, 2: among a section's keys
  int documents_ = 0;
};

}  // namespace

std::vector<Setting> yaml_settings(std::string_view yaml, const std::string& origin) {
  if (yaml.size() > kMaxBytes)
    throw Error(ExitCode::config, fmt::format("{}: {} bytes are too many for a configuration", origin, yaml.size()));
  if (yaml.find('\0') != std::string_view::npos)
    throw Error(ExitCode::config, origin + ": not a text file; a configuration is YAML in UTF-8");
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (yaml.substr(0, kByteOrderMark.size()) == kByteOrderMark) yaml.remove_prefix(kByteOrderMark.size());
  SettingReader reader(yaml, origin);
  try {
    std::istringstream stream{std::string(yaml)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(reader)) {
    }
  } catch (const YAML::Exception& fault) {
    const std::string position =
        fault.mark.is_null() ? "" : fmt::format(":{}:{}", fault.mark.line + 1, fault.mark.column + 1);
    throw Error(
        ExitCode::config,
        fmt::format("{}{}: not valid YAML ({}); write 'key: value', and spaces, no tabs, before a section's keys",
                    origin, position, fault.msg));
  }
  return reader.settings;
}

Origins read_yaml(std::string_view yaml, const std::string& origin, Config& config) {
  return apply_settings(yaml_settings(yaml, origin), config);
}

}  // namespace gpt::config
