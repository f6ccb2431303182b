// The object of a config.json, or one inside it, as a family reads it: each member in the type that is needed, or an error that names it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace gpt::exchange {

class ConfigSettings {
 public:
  // `object` and `origin`, which begins messages, must stay. `prefix` precedes the names of members in messages.
  ConfigSettings(const nlohmann::json& object, std::string prefix, const std::string& origin)
      : object_(object), prefix_(std::move(prefix)), origin_(origin) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  bool is_null(const char* key) const { return object_.contains(key) && object_[key].is_null(); }
  bool is_empty() const { return object_.empty(); }

  int64_t count(const char* key) const;
  int64_t count(const char* key, int64_t otherwise) const { return has(key) ? count(key) : otherwise; }
  double number(const char* key, double otherwise) const;
  bool flag(const char* key, bool otherwise) const;

  bool is(const char* key, const nlohmann::json& value) const { return has(key) && object_[key] == value; }
  // The letters of a list with one of these values for each of so many layers, or more; where it repeats up to
  // 64 letters, those alone.
  std::string pattern(const char* key, int64_t layers,
                      std::initializer_list<std::pair<nlohmann::json, char>> values) const;
  // Where the key is missing, the file means the first of them.
  void must_be(const char* key, std::initializer_list<nlohmann::json> values) const;
  void must_be_absent(const char* key) const;

  ConfigSettings inside(const char* key) const;

  // "WHERE: KEY is VALUE; WHY".
  [[noreturn]] void refuse(const char* key, const std::string& why) const;

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  const std::string& origin_;
};

}  // namespace gpt::exchange
