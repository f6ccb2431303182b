// A value in a JSON file together with its path there, and the errors that report it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bpe_vocabulary.h"
#include "gpt/core/error.h"

namespace gpt::tokenizer {

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string path, const std::string& origin)
      : value_(value), path_(std::move(path)), origin_(origin) {}

  const nlohmann::json& value() const { return value_; }

  [[noreturn]] void malformed(const std::string& needed) const {
    throw Error(ExitCode::data, fmt::format("{}: {} is {}; {} is needed", origin_, path_, shown(value_), needed));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ExitCode::data,
                fmt::format("{}: {} is {}, which this program does not support: {}: use another tokenizer, "
                            "or train one with bpe:N",
                            origin_, path_, name(), why));
  }
  // `known` completes "is X, which this program does not support (only ...)".
  [[noreturn]] void unsupported(const std::string& known) const {
    throw Error(ExitCode::data,
                fmt::format("{}: {} is {}, which this program does not support (only {}): use another tokenizer, "
                            "or train one with bpe:N",
                            origin_, path_, name(), known));
  }

  // A member, null if it is missing.
  JsonNode operator[](const std::string& key) const {
    const auto found = value_.find(key);
    static const nlohmann::json kMissing;
    return {found == value_.end() ? kMissing : *found, path_of(key), origin_};
  }
  std::vector<JsonNode> elements() const {
    if (!value_.is_array()) malformed("a list");
    std::vector<JsonNode> result;
    for (size_t i = 0; i < value_.size(); ++i) result.emplace_back(value_[i], fmt::format("{}[{}]", path_, i), origin_);
    return result;
  }
  const std::string& text() const {
    if (!value_.is_string()) malformed("a string");
    return value_.get_ref<const std::string&>();
  }

  bool flag(bool when_missing) const {
    if (is_null()) return when_missing;
    if (!value_.is_boolean()) malformed("true or false");
    return value_.get<bool>();
  }

  bool is_null() const { return value_.is_null(); }
  bool is_type(std::string_view type) const {
    return value_.is_object() && value_.value("type", nlohmann::json()) == type;
  }
  void must_be(std::initializer_list<nlohmann::json> values) const {
    if (std::find(values.begin(), values.end(), value_) == values.end()) unsupported(shown(*values.begin()));
  }
  // Every member must be known: one that is not could change the ids.
  void must_have_only(const std::set<std::string>& keys) const {
    if (!value_.is_object()) malformed("an object");
    for (const auto& [key, member] : value_.items()) {
      if (keys.count(key) == 0) JsonNode(member, path_of(key), origin_).unsupported("files without it");
    }
  }

 private:
  // A name that is not made of letters and underscores is shown quoted, on one line, truncated if it is long.
  std::string path_of(const std::string& key) const {
    const bool is_plain = key.size() <= 40 && std::all_of(key.begin(), key.end(), [](char c) {
                            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
                          });
    return (path_.empty() ? "" : path_ + ".") + (is_plain ? key : shown(key));
  }
  // A component's type, or the value itself.
  std::string name() const {
    const nlohmann::json type = value_.is_object() ? value_.value("type", nlohmann::json()) : nlohmann::json();
    return type.is_string() ? shown(type) : shown(value_);
  }

  const nlohmann::json& value_;
  std::string path_;
  const std::string& origin_;
};

}  // namespace gpt::tokenizer
