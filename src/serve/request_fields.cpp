#include "request_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "gpt/core/printable.h"
#include "gpt/serve/api_error.h"
#include "gpt/serve/foreign_fields.h"

namespace gpt::serve {

using nlohmann::json;

void refuse(const std::string& message, const std::string& field, int status) {
  throw ApiError(status, message, field);
}

std::string shown(const json& value) {
  return shortened(printable_line(value.dump(-1, ' ', false, json::error_handler_t::replace)), 60);
}

namespace {

constexpr int kDeepest = 32;  // of objects and lists in each other; descriptions of tools need a dozen

// Where it stops being JSON. `byte`: counted from 1; one more than there are where it ends too early.
[[noreturn]] void refuse_json(std::string_view body, size_t byte) {
  if (body.empty()) refuse("the body is empty: it must be a JSON object");
  if (byte > body.size()) refuse("the body is not JSON: it ends too early");
  const size_t before = byte - 1, shown_bytes = std::min<size_t>(before, 20);
  const std::string_view text = body.substr(before - shown_bytes, shown_bytes);
  refuse(fmt::format("the body is not JSON: byte {} is wrong there{}", byte,
                     text.empty() ? "" : fmt::format(", behind: {}", printable_line(text))));
}

// 8.0 too: some languages know no other numbers.
std::optional<int64_t> whole_number(const json& value) {
  constexpr double kExact = 9'007'199'254'740'992;  // 2^53
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  const double number = value.is_number() ? value.get<double>() : 0.5;
  const bool is_whole = std::abs(number) <= kExact && number == std::trunc(number);
  return is_whole ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
}

std::vector<std::string> read_stops(Fields& fields) {
  const json* const stop = fields.find("stop");
  if (!stop) return {};
  std::vector<std::string> stops;
  for (const json& text : stop->is_array() ? *stop : json::array({*stop})) {
    if (!text.is_string()) refuse(fmt::format("stop must be a text or a list of texts, got {}", shown(text)), "stop");
    if (text != "") stops.push_back(text.get<std::string>());  // an empty one is none
  }
  if (stops.size() > kMostStops)
    refuse(fmt::format("stop: there may be {} texts, got {}", kMostStops, stops.size()), "stop");
  return stops;
}

// With a value of 0 for each token it changes nothing.
void check_logit_bias(Fields& fields) {
  const json* const bias = fields.find("logit_bias");
  const auto is_none = [](const json& value) { return value == 0; };
  if (!bias || !bias->is_object() || !std::all_of(bias->begin(), bias->end(), is_none))
    fields.only("logit_bias", json::object());
}

}  // namespace

json parse_object(std::string_view body) {
  json object;
  try {
    object = json::parse(body, [](int depth, json::parse_event_t, const json&) {
      if (depth > kDeepest) refuse("the body is nested too deep");
      return true;
    });
  } catch (const json::parse_error& e) { refuse_json(body, e.byte); } catch (const json::exception&) {
    refuse("the body is not JSON: it has a number that is too large");
  }
  if (!object.is_object()) refuse("the body must be a JSON object");
  return object;
}

const json* Fields::find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int64_t Fields::integer(const char* name, int64_t otherwise, int64_t least, int64_t most) {
  const json* const value = find(name);
  if (!value) return otherwise;
  const std::optional<int64_t> number = whole_number(*value);
  if (!number || *number < least || *number > most)
    refuse(fmt::format("{} must be a whole number from {} to {}, got {}", full(name), least, most, shown(*value)),
           full(name));
  return *number;
}

double Fields::number(const char* name, double otherwise, double least, double most) {
  const json* const value = find(name);
  if (!value) return otherwise;
  const double number = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(number >= least && number <= most))
    refuse(fmt::format("{} must be a number from {:g} to {:g}, got {}", full(name), least, most, shown(*value)),
           full(name));
  return number;
}

bool Fields::boolean(const char* name) {
  const json* const value = find(name);
  if (value && !value->is_boolean())
    refuse(fmt::format("{} must be true or false, got {}", full(name), shown(*value)), full(name));
  return value && value->get<bool>();
}

void Fields::only(const std::string& name, const json& nothing, const char* instead) {
  const json* const value = find(name);
  if (!value || *value == nothing) return;
  const std::string remedy =
      instead ? fmt::format("send {} instead", instead) : fmt::format("leave it out, or send {}", shown(nothing));
  refuse(fmt::format("{} is not supported: {}; got {}", full(name), remedy, shown(*value)), full(name));
}

std::vector<AnswerRequest::LeftOut> Fields::leave_out_others(bool refuses_unknown) {
  std::vector<AnswerRequest::LeftOut> left_out;
  for (const auto& [name, value] : object_.items()) {
    if (known_.contains(name) || value.is_null()) continue;
    const auto is_it = [&](const ForeignField& field) { return field.name == name; };
    const auto foreign = std::find_if(foreign_fields().begin(), foreign_fields().end(), is_it);
    const bool is_known = foreign != foreign_fields().end();
    if (is_known && foreign->nothing) only(name, json::parse(foreign->nothing), foreign->instead);
    const std::string field = full(shortened(printable_line(name), 60));
    if (!is_known && refuses_unknown) refuse(fmt::format("'{}' is no field of a completion", field), field);
    left_out.push_back({field, is_known});
  }
  return left_out;
}

size_t find_model(const std::string& wanted, const std::vector<std::string>& models) {
  const auto found = std::ranges::find(models, wanted);
  if (found != models.end()) return found - models.begin();
  throw ApiError(404, fmt::format("there is no model {} here, only \"{}\"", shown(wanted), fmt::join(models, "\", \"")),
                 "model", "model_not_found");
}

size_t read_model(Fields& fields, const CompletionRules& rules) {
  const json* const model = fields.find("model");
  return model ? find_model(model->is_string() ? model->get<std::string>() : model->dump(), rules.models) : 0;
}

void read_sampling(Fields& fields, generate::SamplingConfig& sampling) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  sampling.temperature = fields.number("temperature", 1, 0, 100);
  sampling.top_p = std::max(fields.number("top_p", 1, 0, 1), 1e-9);  // 0: the likeliest token
  sampling.top_k = std::max<int64_t>(fields.integer("top_k", 0, -1, kMost), 0);
  sampling.min_p = fields.number("min_p", 0, 0, 1);
  sampling.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 100);
  const int64_t seed = fields.integer("seed", -1, std::numeric_limits<int64_t>::min(), kMost);
  sampling.seed = seed != -1 ? static_cast<uint64_t>(seed) : std::random_device()();
  sampling.stop = read_stops(fields);
}

void read_stream(Fields& fields, bool refuses_unknown, AnswerRequest& request) {
  request.stream = fields.boolean("stream");
  const json* const options = fields.find("stream_options");
  if (!options) return;
  if (!options->is_object())
    refuse(fmt::format("stream_options must be an object, got {}", shown(*options)), "stream_options");
  Fields inner(*options, "stream_options.");
  request.include_usage = inner.boolean("include_usage");
  request.continuous_usage = inner.boolean("continuous_usage_stats");
  inner.only("include_obfuscation", false);
  if (!request.stream && (request.include_usage || request.continuous_usage))
    refuse("stream_options needs stream: true", "stream_options");
  request.left_out = inner.leave_out_others(refuses_unknown);
}

void refuse_other_sampling(Fields& fields) {
  fields.only("presence_penalty", 0);
  fields.only("frequency_penalty", 0);
  check_logit_bias(fields);
}

}  // namespace gpt::serve
