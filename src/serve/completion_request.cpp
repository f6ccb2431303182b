#include "gpt/serve/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "gpt/core/printable.h"
#include "gpt/serve/api_error.h"

namespace gpt::serve {
namespace {

using nlohmann::json;

constexpr int kDeepest = 8;  // of objects and lists in each other

[[noreturn]] void refuse(const std::string& message, const std::string& field = {}, int status = 400) {
  throw ApiError(status, message, field);
}

std::string shown(const json& value) {
  return shortened(printable_line(value.dump(-1, ' ', false, json::error_handler_t::replace)), 60);
}

json parse_object(std::string_view body) {
  json object;
  try {
    object = json::parse(body, [](int depth, json::parse_event_t, const json&) {
      if (depth > kDeepest) refuse("the body is nested too deep");
      return true;
    });
  } catch (const json::exception& e) {
    refuse(fmt::format("the body is not JSON: {}", shortened(printable_line(e.what()), 200)));
  }
  if (!object.is_object()) refuse("the body must be a JSON object");
  return object;
}

// The fields of an object, each of which is asked for once. null is a field that is missing, as clients mean it.
class Fields {
 public:
  Fields(const json& object, std::string prefix = {}) : object_(object), prefix_(std::move(prefix)) {}

  const json* find(const char* name) {
    known_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  int64_t integer(const char* name, int64_t otherwise, int64_t least, int64_t most) {
    const json* const value = find(name);
    if (!value) return otherwise;
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(most)
                                                  : value->is_number_integer() && value->get<int64_t>() <= most;
    if (!fits || value->get<int64_t>() < least)
      refuse(fmt::format("{} must be a whole number from {} to {}, got {}", full(name), least, most, shown(*value)),
             full(name));
    return value->get<int64_t>();
  }

  double number(const char* name, double otherwise, double least, double most) {
    const json* const value = find(name);
    if (!value) return otherwise;
    const double number = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= least && number <= most))
      refuse(fmt::format("{} must be a number from {:g} to {:g}, got {}", full(name), least, most, shown(*value)),
             full(name));
    return number;
  }

  bool boolean(const char* name) {
    const json* const value = find(name);
    if (value && !value->is_boolean())
      refuse(fmt::format("{} must be true or false, got {}", full(name), shown(*value)), full(name));
    return value && value->get<bool>();
  }

  // A field that is not supported may have the value that changes nothing.
  void only(const char* name, const json& nothing) {
    const json* const value = find(name);
    if (value && *value != nothing)
      refuse(fmt::format("{} is not supported: leave it out, or send {}; got {}", full(name), shown(nothing),
                         shown(*value)),
             full(name));
  }

  void refuse_others() const {
    for (const auto& [name, value] : object_.items()) {
      if (!known_.contains(name)) {
        const std::string field = full(shortened(printable_line(name), 60));
        refuse(fmt::format("'{}' is no field of a completion", field), field);
      }
    }
  }

 private:
  std::string full(const std::string& name) const { return prefix_ + name; }

  const json& object_;
  const std::string prefix_;
  std::set<std::string> known_;
};

std::vector<int32_t> read_ids(const json& list) {
  std::vector<int32_t> ids;
  for (const json& id : list) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits) refuse(fmt::format("prompt: a token must be a whole number from 0 on, got {}", shown(id)), "prompt");
    ids.push_back(id.get<int32_t>());
  }
  if (ids.empty()) refuse("prompt: a list of tokens must have at least one", "prompt");
  return ids;
}

void read_prompts(Fields& fields, CompletionRequest& request) {
  const json* const prompt = fields.find("prompt");
  if (!prompt) refuse("prompt is missing", "prompt");
  if (prompt->is_string()) return request.prompts.emplace_back(prompt->get<std::string>()), void();
  if (!prompt->is_array())
    refuse("prompt must be a text, a list of texts, a list of tokens or a list of those", "prompt");
  if (prompt->empty() || prompt->front().is_number()) return request.prompts.emplace_back(read_ids(*prompt)), void();
  for (const json& one : *prompt) {
    if (one.is_string()) {
      request.prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array()) {
      request.prompts.emplace_back(read_ids(one));
    } else {
      refuse(fmt::format("prompt: each of a list must be a text or a list of tokens, got {}", shown(one)), "prompt");
    }
  }
}

std::vector<std::string> read_stops(Fields& fields) {
  const json* const stop = fields.find("stop");
  if (!stop) return {};
  const json list = stop->is_array() ? *stop : json::array({*stop});
  if (list.size() > kMostStops)
    refuse(fmt::format("stop: there may be {} texts, got {}", kMostStops, list.size()), "stop");
  std::vector<std::string> stops;
  for (const json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      refuse(fmt::format("stop must be a text or a list of texts, none of them empty, got {}", shown(text)), "stop");
    stops.push_back(text.get<std::string>());
  }
  return stops;
}

SamplingConfig read_sampling(Fields& fields, int64_t most_tokens) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  SamplingConfig sampling;
  sampling.max_new_tokens = fields.integer("max_tokens", std::min<int64_t>(16, most_tokens), 0, most_tokens);
  sampling.temperature = fields.number("temperature", 1, 0, 100);
  sampling.top_p = fields.number("top_p", 1, 1e-9, 1);
  sampling.top_k = fields.integer("top_k", 0, 0, kMost);
  sampling.min_p = fields.number("min_p", 0, 0, 1);
  sampling.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 100);
  const int64_t seed = fields.integer("seed", -1, 0, kMost);
  sampling.seed = seed >= 0 ? static_cast<uint64_t>(seed) : std::random_device()();
  sampling.stop = read_stops(fields);
  return sampling;
}

void read_stream(Fields& fields, CompletionRequest& request) {
  request.stream = fields.boolean("stream");
  const json* const options = fields.find("stream_options");
  if (!options) return;
  if (!options->is_object() || !request.stream)
    refuse("stream_options must be an object, and needs stream: true", "stream_options");
  Fields inner(*options, "stream_options.");
  request.include_usage = inner.boolean("include_usage");
  inner.only("include_obfuscation", false);
  inner.refuse_others();
}

void check_model(Fields& fields, const std::string& model) {
  const json* const wanted = fields.find("model");
  if (!wanted || *wanted == model) return;
  throw ApiError(404, fmt::format("there is no model {} here, only \"{}\"", shown(*wanted), model), "model",
                 "model_not_found");
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body, const std::string& model, int64_t most_tokens) {
  const json object = parse_object(body);
  Fields fields(object);
  check_model(fields, model);
  CompletionRequest request;
  read_prompts(fields, request);
  request.sampling = read_sampling(fields, most_tokens);
  request.n = fields.integer("n", 1, 1, kMostChoices);
  if (const auto texts = request.n * std::ssize(request.prompts); texts > kMostChoices)
    refuse(fmt::format("a request may ask for {} texts, got {} (prompts times n)", kMostChoices, texts), "n");
  if (const int64_t logprobs = fields.integer("logprobs", -1, 0, kMostLogprobs); logprobs >= 0)
    request.logprobs = logprobs;
  request.echo = fields.boolean("echo");
  read_stream(fields, request);
  fields.only("best_of", request.n);
  fields.only("suffix", "");
  fields.only("presence_penalty", 0);
  fields.only("frequency_penalty", 0);
  fields.only("logit_bias", json::object());
  fields.find("user");  // who asks changes nothing
  fields.refuse_others();
  return request;
}

}  // namespace gpt::serve
