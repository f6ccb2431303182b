// What the readers of YAML share: positions, faults, and values that are lists or maps.
#pragma once

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include <string>
#include <string_view>
#include <vector>

#include "gpt/core/error.h"
#include "node_builder.h"

namespace gpt::config {

class YamlReader : public YAML::EventHandler {
 public:
  YamlReader(std::string_view yaml, const std::string& origin) : yaml_(yaml), origin_(origin) {
    for (size_t i = 0; i < yaml.size(); ++i) {
      if (yaml[i] == '\n') line_starts_.push_back(i + 1);
    }
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail(mark, "one document per file: nothing may follow the first");
  }
  void OnDocumentEnd() override {}

 protected:
  std::string position(const YAML::Mark& mark) const {
    return mark.is_null() ? origin_ : fmt::format("{}:{}:{}", origin_, mark.line + 1, mark.column + 1);
  }
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw Error(ExitCode::config, fmt::format("{}: {}", position(mark), what));
  }

  void begin(Node::Kind kind, const YAML::Mark& mark) {
    if (builder_.is_full()) fail(mark, "nothing nests deeper than this");
    if (builder_.wants_key()) fail(mark, "a key must be a plain word");
    builder_.begin(kind, position(mark));
  }

  // yaml-cpp reads on past a missing closing quote, to the next quote or the end of the file.
  void check_closed_quote(const YAML::Mark& mark) const {
    if (mark.is_null() || mark.line >= static_cast<int>(line_starts_.size())) return;
    const size_t start = line_starts_[mark.line];
    const std::string_view line = yaml_.substr(start, yaml_.find('\n', start) - start);
    if (mark.column >= static_cast<int>(line.size())) return;
    const char quote = line[mark.column];
    if (quote != '"' && quote != '\'') return;
    for (size_t i = mark.column + 1; i < line.size(); ++i) {
      if (line[i] == quote) return;
      if (line[i] == '\\' && quote == '"') ++i;
    }
    fail(mark, "the closing quote is missing on this line");
  }

  NodeBuilder builder_;

 private:
  std::string_view yaml_;
  std::vector<size_t> line_starts_ = {0};
  std::string origin_;
  int documents_ = 0;
};

}  // namespace gpt::config
