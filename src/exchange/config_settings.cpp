#include "config_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;

std::string shown_member(const json& value) {
  constexpr size_t kLongest = 100;
  return shortened(printable_line(value.dump(-1, ' ', false, json::error_handler_t::replace)), kLongest);
}

}  // namespace

int64_t ConfigSettings::count(const char* key) const {
  constexpr int64_t kMost = 1'000'000'000;
  if (has(key) && object_[key].is_number_integer() && object_[key] >= 1 && object_[key] <= kMost)
    return object_[key].get<int64_t>();
  refuse(key, "a whole number from 1 on is needed");
}

double ConfigSettings::number(const char* key, double otherwise) const {
  if (!has(key)) return otherwise;
  if (object_[key].is_number() && std::isfinite(object_[key].get<double>())) return object_[key].get<double>();
  refuse(key, "a number is needed");
}

bool ConfigSettings::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (object_[key].is_boolean()) return object_[key].get<bool>();
  refuse(key, "true or false is needed");
}

std::string ConfigSettings::pattern(const char* key, int64_t layers,
                                    std::initializer_list<std::pair<json, char>> values) const {
  if (!has(key) || !object_[key].is_array() || std::ssize(object_[key]) < layers)
    refuse(key, fmt::format("a list with a value for each of {} is needed", plural(layers, "layer")));
  std::string found;
  for (int64_t i = 0; i < layers; ++i) {
    const json& value = object_[key][static_cast<size_t>(i)];
    const auto known = std::find_if(values.begin(), values.end(), [&](const auto& one) { return one.first == value; });
    if (known == values.end())
      refuse(key, fmt::format("this program does not have {} in such a model", shown_member(value)));
    found += known->second;
  }
  constexpr ptrdiff_t kLongest = 64;  // of what repeats: a hostile file has a million values
  for (ptrdiff_t period = 1; period <= std::min(kLongest, std::ssize(found)); ++period)
    if (std::equal(found.begin() + period, found.end(), found.begin()))
      return found.substr(0, static_cast<size_t>(period));
  return found;
}

void ConfigSettings::must_be(const char* key, std::initializer_list<json> values) const {
  if (!has(key) || std::find(values.begin(), values.end(), object_[key]) != values.end()) return;
  refuse(key, fmt::format("this program has only {}", shown_member(*values.begin())));
}

void ConfigSettings::must_be_absent(const char* key) const {
  if (has(key)) refuse(key, "this program has only models without it");
}

ConfigSettings ConfigSettings::inside(const char* key) const {
  if (!object_[key].is_object()) refuse(key, "an object is needed");
  return {object_[key], prefix_ + key + ".", origin_};
}

void ConfigSettings::refuse(const char* key, const std::string& why) const {
  const std::string value = object_.contains(key) ? shown_member(object_[key]) : "missing";
  throw Error(ExitCode::checkpoint, fmt::format("{}: {}{} is {}; {}", origin_, prefix_, key, value, why));
}

}  // namespace gpt::exchange
