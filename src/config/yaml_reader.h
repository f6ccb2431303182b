// What the readers of YAML share: positions, faults, and values that are lists or maps.
#pragma once

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "gpt/core/error.h"
#include "node_builder.h"
#include "yaml_mistakes.h"

namespace gpt::config {

class YamlReader : public YAML::EventHandler {
 public:
  YamlReader(std::string_view yaml, const std::string& origin) : lines_(lines_of(yaml)), origin_(origin) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    if (text_at(mark).starts_with("---"))
      fail(mark, "a configuration is one YAML document; remove what follows the first");
    fail(mark, "wrong indentation: less than in the first line; keys of one level must start in the same column");
  }
  void OnDocumentEnd() override {}

  [[noreturn]] void fail(const Mistake& mistake) const {
    throw Error(ExitCode::config,
                fmt::format("{}:{}:{}: {}", origin_, mistake.line + 1, mistake.column + 1, mistake.what));
  }
  // What to say of the exception with which the parser gave up.
  [[noreturn]] void fail(const YAML::Exception& fault) const { fail(mistake_of(lines_, fault)); }

 protected:
  std::string position(const YAML::Mark& mark) const {
    return mark.is_null() ? origin_ : fmt::format("{}:{}:{}", origin_, mark.line + 1, mark.column + 1);
  }
  // A line that is not even 'key: value' is the cause of whatever was found there.
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    if (const auto mistake = mark.is_null() ? std::nullopt : mistake_in(lines_, mark.line)) fail(*mistake);
    throw Error(ExitCode::config, fmt::format("{}: {}", position(mark), what));
  }

  void begin(Node::Kind kind, const YAML::Mark& mark) {
    if (builder_.is_full()) fail(mark, "lists and maps cannot be nested deeper than this");
    if (builder_.wants_key()) fail(mark, "a key must be a plain word");
    builder_.begin(kind, position(mark));
  }

  // yaml-cpp reads on past a missing closing quote, to the next quote or the end of the file.
  void check_closed_quote(const YAML::Mark& mark) const {
    const std::string_view text = text_at(mark);
    if (!text.starts_with('"') && !text.starts_with('\'')) return;
    for (size_t i = 1; i < text.size(); ++i) {
      if (text[i] == text[0]) return;
      if (text[i] == '\\' && text[0] == '"') ++i;
    }
    fail(mark, "the closing quote is missing on this line");
  }

  // A value without quotes goes on over the lines below that are indented: more likely, one of them lacks its colon.
  void check_one_line(const YAML::Mark& mark, const std::string& tag, const std::string& value) const {
    const std::string_view text = text_at(mark);
    const bool is_plain = tag == "?" && !text.starts_with('&') && !text.starts_with('!');
    if (is_plain && !text.starts_with(value)) fail(mistake_after(lines_, mark.line));
  }

  NodeBuilder builder_;

 private:
  // The rest of the line, from a place on.
  std::string_view text_at(const YAML::Mark& mark) const {
    if (mark.is_null() || mark.line >= static_cast<int>(lines_.size())) return "";
    const std::string_view line = lines_[mark.line];
    return line.substr(std::min<size_t>(mark.column, line.size()));
  }

  Lines lines_;
  std::string origin_;
  int documents_ = 0;
};

}  // namespace gpt::config
