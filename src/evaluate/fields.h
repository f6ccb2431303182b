// The members of one line of JSON, with errors that begin with its place.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gpt::evaluate {

class Fields {
 public:
  Fields(const nlohmann::json& object, std::string place);

  bool has(const char* key) const;  // and it is not null
  std::string text(const char* key) const;
  std::vector<std::string> texts(const char* key) const;  // at least one
  Fields inside(const char* key) const;
  std::vector<Fields> list(const char* key) const;  // of objects, at least one
  // A number from 0 on below `count`, which may be written as a text.
  int64_t index(const char* key, int64_t count) const;

  const std::string& place() const { return place_; }
  [[noreturn]] void refuse(const char* key, const std::string& why) const;  // "PLACE: KEY is VALUE; WHY"

 private:
  const nlohmann::json& at(const char* key) const;

  const nlohmann::json& object_;
  const std::string place_;
};

}  // namespace gpt::evaluate
