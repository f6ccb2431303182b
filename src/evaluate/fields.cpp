#include "fields.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::evaluate {

using nlohmann::json;

Fields::Fields(const json& object, std::string place) : object_(object), place_(std::move(place)) {
  if (!object.is_object()) fail(place_, "it is no JSON object");
}

bool Fields::has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

std::string Fields::text(const char* key) const {
  if (!at(key).is_string()) refuse(key, "a text is needed");
  return at(key).get<std::string>();
}

std::vector<std::string> Fields::texts(const char* key) const {
  std::vector<std::string> result;
  if (!at(key).is_array() || at(key).empty()) refuse(key, "a list of texts is needed");
  for (const json& text : at(key)) {
    if (!text.is_string()) refuse(key, "a list of texts is needed");
    result.push_back(text.get<std::string>());
  }
  return result;
}

Fields Fields::inside(const char* key) const {
  if (!at(key).is_object()) refuse(key, "an object is needed");
  return {at(key), fmt::format("{}: {}", place_, key)};
}

std::vector<Fields> Fields::list(const char* key) const {
  std::vector<Fields> result;
  if (!at(key).is_array() || at(key).empty()) refuse(key, "a list of objects is needed");
  for (const json& object : at(key)) result.emplace_back(object, fmt::format("{}: {}", place_, key));
  return result;
}

int64_t Fields::index(const char* key, int64_t count) const {
  int64_t value = -1;
  if (at(key).is_number_integer()) value = at(key).get<int64_t>();
  if (at(key).is_string()) {
    const std::string digits = text(key);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) value = -1;
  }
  if (value >= 0 && value < count) return value;
  refuse(key, fmt::format("there are {} answers, which are numbered from 0", count));
}

const json& Fields::at(const char* key) const {
  if (!object_.contains(key)) refuse(key, "this kind of task needs it");
  return object_[key];
}

void Fields::refuse(const char* key, const std::string& why) const {
  constexpr size_t kLongest = 100;
  if (!object_.contains(key)) fail(place_, fmt::format("{} is missing; {}", key, why));
  const std::string value = object_[key].dump(-1, ' ', false, json::error_handler_t::replace);
  fail(place_, fmt::format("{} is {}; {}", key, shortened(printable_line(value), kLongest), why));
}

}  // namespace gpt::evaluate
