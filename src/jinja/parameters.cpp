#include "parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "operators.h"

namespace gpt::jinja {

Value Parameters::take(std::string_view name, Value otherwise) {
  if (has_more()) return arguments_.positional[next_++];
  const auto is_it = [name](const auto& argument) { return argument.first == name; };
  const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(), is_it);
  if (found == arguments_.named.end()) return otherwise;
  Value value = std::move(found->second);
  arguments_.named.erase(found);
  return value;
}

Value Parameters::take(std::string_view name) {
  const bool is_named =
      std::any_of(arguments_.named.begin(), arguments_.named.end(), [name](const auto& a) { return a.first == name; });
  if (!has_more() && !is_named) throw Failure{fmt::format("{} needs '{}'", function_, name)};
  return take(name, Value());
}

void Parameters::refuse(std::string_view name, const char* wanted, const Value& value) const {
  throw Failure{fmt::format("{}: '{}' is {}, not a {}", function_, name, wanted, value.type_name())};
}

std::string Parameters::text(std::string_view name) {
  const Value value = take(name);
  if (!value.text()) refuse(name, "a text", value);
  return *value.text();
}

std::string Parameters::text(std::string_view name, std::string_view otherwise) {
  const Value value = take(name, otherwise);
  if (!value.text()) refuse(name, "a text", value);
  return *value.text();
}

int64_t Parameters::integer(std::string_view name, int64_t otherwise) {
  const Value value = take(name, otherwise);
  if (!as_integer(value)) refuse(name, "a whole number", value);
  return *as_integer(value);
}

bool Parameters::truth(std::string_view name, bool otherwise) { return is_true(take(name, otherwise)); }

Arguments Parameters::rest() {
  Arguments rest{{arguments_.positional.begin() + static_cast<ptrdiff_t>(next_), arguments_.positional.end()},
                 std::move(arguments_.named)};
  next_ = arguments_.positional.size();
  arguments_.named.clear();
  return rest;
}

void Parameters::end() const {
  if (has_more()) throw Failure{fmt::format("{} takes no more than {} arguments", function_, next_)};
  if (!arguments_.named.empty())
    throw Failure{fmt::format("{} has no parameter '{}'", function_, arguments_.named[0].first)};
}

}  // namespace gpt::jinja
