#include "gpt/control/message.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::control {
namespace {

using nlohmann::ordered_json;

struct Kind {
  Verb verb;
  const char *name, *value, *help;  // `value`: what it is called; empty: there is none
  double least = 0, most = 0;
  bool is_whole = false;
};

constexpr double kLeastFactor = 1e-6, kMostFactor = 100, kMostSteps = 1e12;

constexpr std::array kKinds = {
    Kind{Verb::pause, "pause", "", "wait before the next update, with everything in memory"},
    Kind{Verb::go_on, "continue", "", "go on after a pause"},
    Kind{Verb::save, "save", "", "write ckpt.pt now"},
    Kind{Verb::validate, "validate", "",
         "measure the validation loss now; it counts neither as the best nor for patience"},
    Kind{Verb::sample, "sample", "", "write a sample now"},
    Kind{Verb::stop, "stop", "", "save and end, as after Ctrl-C; the same command goes on"},
    Kind{Verb::rate, "rate", "FACTOR", "multiply the schedule's learning rate by FACTOR from now on; 1 = as it was",
         kLeastFactor, kMostFactor},
    Kind{Verb::steps, "steps", "N", "end after step N; the rest of the schedule is stretched or shortened to that", 1,
         kMostSteps, true},
    Kind{Verb::longer, "longer", "N", "the same, N steps later than now planned", 1, kMostSteps, true},
    Kind{Verb::shorter, "shorter", "N", "the same, N steps earlier", 1, kMostSteps, true},
};

const Kind& kind_of(Verb verb) {
  return *std::find_if(kKinds.begin(), kKinds.end(), [verb](const Kind& kind) { return kind.verb == verb; });
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ExitCode::config, why); }

const Kind& find_kind(const std::string& name) {
  const auto* const kind =
      std::find_if(kKinds.begin(), kKinds.end(), [&name](const Kind& each) { return name == each.name; });
  if (kind != kKinds.end()) return *kind;
  const std::vector<std::string> all = names();
  const std::optional<std::string> near = config::did_you_mean(name, all);
  const std::string shown = printable_line(name.substr(0, 100));
  if (near) refuse(fmt::format("a run cannot be told '{}'; did you mean '{}'?", shown, *near));
  refuse(fmt::format("a run cannot be told '{}'; say {}", shown, fmt::join(all, ", ")));
}

Request checked(const Kind& kind, double value) {
  if (!(value >= kind.least && value <= kind.most) || (kind.is_whole && value != std::floor(value)))
    refuse(fmt::format("{} needs a {} from {} to {}, got {}", kind.name, kind.is_whole ? "whole number" : "number",
                       kind.least, kind.most, value));
  return {kind.verb, value};
}

// Without a value, and it needs one; or with one that it does not have.
[[noreturn]] void refuse_value(const Kind& kind) {
  if (*kind.value) refuse(fmt::format("{} needs a number: {} {}", kind.name, kind.name, kind.value));
  refuse(fmt::format("{} takes no value", kind.name));
}

}  // namespace

std::string name_of(Verb verb) { return kind_of(verb).name; }

Request request_of(const std::string& verb, const std::optional<std::string>& value) {
  const Kind& kind = find_kind(verb);
  if (value.has_value() != (*kind.value != 0)) refuse_value(kind);
  if (!value) return {kind.verb};
  double number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size())
    refuse(fmt::format("{} needs a number, got '{}'", kind.name, printable_line(value->substr(0, 100))));
  return checked(kind, number);
}

std::string to_line(const Request& request) {
  const Kind& kind = kind_of(request.verb);
  ordered_json json{{"verb", kind.name}};
  if (*kind.value) json["value"] = request.value;
  return json.dump() + "\n";
}

Request read_request(std::string_view line) {
  const ordered_json json = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("verb") || !json["verb"].is_string())
    refuse(R"(a request is a line such as {"verb": "pause"} or {"verb": "rate", "value": 0.5})");
  for (const auto& [key, value] : json.items())
    if (key != "verb" && key != "value")
      refuse(fmt::format("a request has no '{}'", printable_line(key.substr(0, 100))));
  const Kind& kind = find_kind(json["verb"].get<std::string>());
  if (json.contains("value") != (*kind.value != 0)) refuse_value(kind);
  if (!*kind.value) return {kind.verb};
  if (!json["value"].is_number()) refuse_value(kind);
  return checked(kind, json["value"].get<double>());
}

std::string to_line(const Answer& answer) {
  const ordered_json json{{"done", answer.is_done}, {"said", answer.said}};
  return json.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n";
}

std::optional<Answer> read_answer(std::string_view line) {
  const ordered_json json = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  const bool is_answer = json.is_object() && json.contains("done") && json["done"].is_boolean() &&
                         json.contains("said") && json["said"].is_string();
  if (!is_answer) return std::nullopt;
  return Answer{json["done"].get<bool>(), json["said"].get<std::string>()};
}

std::string verbs_for_people() {
  std::string text;
  for (const Kind& kind : kKinds)
    text +=
        fmt::format("  {:<16}{}\n", fmt::format("{}{}{}", kind.name, *kind.value ? " " : "", kind.value), kind.help);
  return text;
}

}  // namespace gpt::control
