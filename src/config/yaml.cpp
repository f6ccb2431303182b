// YAML as a stream of events, not as yaml-cpp's tree: duplicates stay visible, every value keeps its position, nothing
// nests deeper than a key's list of maps, and hostile input is refused before it can recurse.
#include <fmt/format.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "foreign.h"
#include "gpt/config/load.h"
#include "gpt/config/setting.h"
#include "gpt/config/suggest.h"
#include "gpt/config/value.h"
#include "gpt/core/error.h"
#include "limits.h"
#include "yaml_reader.h"

namespace gpt::config {
namespace {

// One value, as a flag gives it.
class NodeReader : public YamlReader {
 public:
  using YamlReader::YamlReader;
  Node result() && { return std::move(builder_.result); }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { OnScalar(mark, "?", YAML::NullAnchor, ""); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "a YAML alias is only possible in a file");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    check_closed_quote(mark);
    check_one_line(mark, tag, value);
    builder_.scalar({.text = value, .quoted = tag != "?", .where = position(mark)});
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    begin(Node::Kind::list, mark);
  }
  void OnSequenceEnd() override { builder_.end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    begin(Node::Kind::map, mark);
  }
  void OnMapEnd() override { builder_.end(); }
};

class SettingReader : public YamlReader {
 public:
  SettingReader(std::string_view yaml, const std::string& origin)
      : YamlReader(yaml, origin), rows_(options(defaults_)) {
    for (const Option& row : rows_) {
      if (!row.section.empty() && !is_section(row.section)) sections_.push_back(row.section);
    }
  }

  std::vector<Setting> settings;

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (builder_.is_open()) return builder_.scalar({.where = position(mark)});
    if (depth_ == 0) return;  // an empty file: all defaults
    if (!key_) fail(mark, "a value without a key");
    if (depth_ == 1 && is_section(key_->text)) {
      open_section();  // a section whose keys are all commented out
      section_.clear();
    } else {
      spelling();
      fail(key_->mark, fmt::format("{} has no value; remove the line to use the default", in_quotes(key_->text)));
    }
    key_.reset();
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (depth_ == 0) fail(mark, fmt::format("expected lines of 'key: value', got {}", in_quotes(value)));
    check_closed_quote(mark);
    check_one_line(mark, tag, value);
    if (builder_.is_open()) return take_part({value, mark, tag != "?"}, anchor);
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
    if ((!key_ && !builder_.is_open()) || found == anchors_.end())
      fail(mark, "a YAML alias can only stand for a single value");
    if (builder_.is_open()) return take_part({found->second.text, mark, found->second.is_quoted}, YAML::NullAnchor);
    take({found->second.text, mark, found->second.is_quoted});
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    if (builder_.is_open() || takes_structure()) return begin(Node::Kind::list, mark);
    if (!key_) fail(mark, "expected lines of 'key: value', got a list");
    if (depth_ == 1 && is_section(key_->text)) fail(mark, not_a_section("a list"));
    spelling();
    fail(mark, fmt::format("{} takes one value, not a list", in_quotes(key_->text)));
  }
  void OnSequenceEnd() override { end_of_part(); }

  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    if (builder_.is_open() || takes_structure()) return begin(Node::Kind::map, mark);
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
    if (builder_.is_open()) return end_of_part();
    if (--depth_ == 1) section_.clear();
  }

 private:
  struct Scalar {
    std::string text;
    YAML::Mark mark;
    bool is_quoted;
  };

  bool is_section(const std::string& name) const {
    return std::find(sections_.begin(), sections_.end(), name) != sections_.end();
  }

  void open_section() {
    section_ = key_->text;
    const auto [first, is_new] = opened_.try_emplace(section_, position(key_->mark));
    if (!is_new)
      fail(key_->mark, fmt::format("section '{}' already exists at {}; merge the two", section_, first->second));
  }

  void take(const Scalar& value) {
    if (depth_ == 1 && is_section(key_->text)) { fail(value.mark, not_a_section(in_quotes(value.text))); }
    add_setting(settings, spelling(),
                {.text = value.text,
                 .quoted = value.is_quoted,
                 .written = position(key_->mark),
                 .where = position(value.mark)});
    key_.reset();
  }

  // What the pending key spells. At the top level a section may be written before it, as flags and messages have it.
  Spelling find_key() const {
    const Spelling found = find_option(rows_, section_, key_->text);
    const size_t dot = key_->text.find('.');
    if (found.option || !section_.empty() || dot == std::string::npos) return found;
    return find_option(rows_, key_->text.substr(0, dot), key_->text.substr(dot + 1));
  }

  // Whether the pending key is one whose value is lists and maps.
  bool takes_structure() const {
    const Option* option = key_ ? find_key().option : nullptr;
    return option && std::holds_alternative<Structure>(option->target);
  }

  void take_part(const Scalar& value, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = value;
    builder_.scalar({.text = value.text, .quoted = value.is_quoted, .where = position(value.mark)});
  }

  void end_of_part() {
    builder_.end();
    if (builder_.is_open()) return;
    Setting setting{.written = position(key_->mark), .where = builder_.result.where};
    setting.node = std::make_shared<const Node>(std::move(builder_.result));
    add_setting(settings, spelling(), std::move(setting));
    key_.reset();
  }

  std::string not_a_section(const std::string& got) const {
    return fmt::format("'{}' is a section, got {}; its keys go below it, indented", key_->text, got);
  }

  // The option of the pending key, or the fault of an unknown key.
  Spelling spelling() const {
    const Spelling found = find_key();
    if (!found.option) fail(key_->mark, unknown_key(key_->text));
    return found;
  }

  // The names that are possible where the parser is, or those that are not.
  std::vector<std::string> names(bool here) const {
    std::vector<std::string> result;
    for (const Option& row : rows_) {
      if (here && section_.empty()) result.push_back(row.key());
      if ((row.section == section_) != here) continue;
      result.push_back(row.name);
      for (const Alias& alias : row.aliases) result.push_back(alias.name);
    }
    if (here && section_.empty()) result.insert(result.end(), sections_.begin(), sections_.end());
    return result;
  }

  std::string unknown_key(const std::string& name) const {
    const auto place = [](const std::string& section) {
      return section.empty() ? "the top level" : "'" + section + "'";
    };
    if (is_section(name)) return fmt::format("section '{}' belongs at the top level, not indented", name);
    for (const Option& row : rows_) {
      if (find_option(rows_, row.section, name).option)
        return row.section.empty() ? fmt::format("'{}' belongs at the top level, not indented", name)
                                   : fmt::format("'{}' belongs below '{}:', indented", name, row.section);
    }
    const std::string what =
        fmt::format("unknown key {}{}", in_quotes(name), section_.empty() ? "" : " in " + place(section_));
    if (const auto advice = advice_for(name, /*in_yaml=*/true)) return fmt::format("{}: {}", what, *advice);
    if (const auto near = did_you_mean(name, names(/*here=*/true)))
      return fmt::format("{}; did you mean '{}'?", what, *near);
    if (const auto near = did_you_mean(name, names(/*here=*/false))) {
      for (const Option& row : rows_) {
        if (find_option(rows_, row.section, *near).option)
          return fmt::format("{}; did you mean '{}' in {}?", what, *near, place(row.section));
      }
    }
    return what + "; --help lists all keys";
  }

  Config defaults_;
  std::vector<Option> rows_;
  std::vector<std::string> sections_;
  Origins opened_;
  std::map<YAML::anchor_t, Scalar> anchors_;
  std::optional<Scalar> key_;
  std::string section_;
  int depth_ = 0;  // 1: among sections, 2: among a section's keys
};

void read(std::string_view yaml, YamlReader& reader) {
  try {
    std::istringstream stream{std::string(yaml)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(reader)) {}
  } catch (const YAML::Exception& fault) { reader.fail(fault); }
}

// Recognizes UTF-16 by its byte order mark, or by the zeros in one half of its first character.
bool is_utf16(std::string_view text) {
  if (text.size() < 2) return false;
  return text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") || (text[0] == '\0') != (text[1] == '\0');
}

}  // namespace

std::vector<Setting> yaml_settings(std::string_view yaml, const std::string& origin) {
  if (yaml.size() > kMostBytes)
    throw Error(ExitCode::config, fmt::format("{}: {} bytes is too large for a configuration", origin, yaml.size()));
  if (is_utf16(yaml)) throw Error(ExitCode::config, origin + ": the file is text in UTF-16; save it as UTF-8");
  if (yaml.find('\0') != std::string_view::npos)
    throw Error(ExitCode::config, origin + ": not a text file; a configuration is YAML in UTF-8");
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (yaml.substr(0, kByteOrderMark.size()) == kByteOrderMark) yaml.remove_prefix(kByteOrderMark.size());
  SettingReader reader(yaml, origin);
  read(yaml, reader);
  return reader.settings;
}

Node parse_node(std::string_view yaml, const std::string& origin) {
  NodeReader reader(yaml, origin);
  read(yaml, reader);
  return std::move(reader).result();
}

Origins read_yaml(std::string_view yaml, const std::string& origin, Config& config) {
  return apply_settings(yaml_settings(yaml, origin), config);
}

}  // namespace gpt::config
