#include "filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "access.h"
#include "gpt/core/utf8.h"
#include "operators.h"
#include "python_text.h"

namespace gpt::jinja {
namespace {

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

template <std::string (*change)(std::string_view)>
Value changed_text(const Value& value, Parameters&, Runtime& runtime) {
  return change(text_of(value, runtime));
}

// The first letter of each word in upper case; words end at white space and at - ( { [ <
std::string titled(std::string_view text) {
  std::string result;
  bool begins_word = true;
  for (const std::string_view character : characters(text)) {
    const bool separates =
        is_white(utf8::scan(character, 0).value) || std::string_view("-({[<").find(character) != std::string_view::npos;
    result += begins_word ? upper(character) : lower(character);
    begins_word = separates;
  }
  return result;
}

Value trimmed(const Value& value, Parameters& parameters, Runtime& runtime) {
  const Value chosen = parameters.take("chars", None{});
  return strip(text_of(value, runtime), chosen.text(), Sides::both);
}

Value defaulted(const Value& value, Parameters& parameters, Runtime&) {
  const Value otherwise = parameters.take("default_value", "");
  const bool also_if_false = parameters.truth("boolean", false);
  return value.is_undefined() || (also_if_false && !is_true(value)) ? otherwise : value;
}

Value with_replacements(const Value& value, Parameters& parameters, Runtime& runtime) {
  const std::string text = text_of(value, runtime), old = text_of(parameters.take("old"), runtime),
                    by = text_of(parameters.take("new"), runtime);
  const Value most = parameters.take("count", None{});
  runtime.charge(text.size() + (text.size() / std::max<size_t>(old.size(), 1) + 1) * by.size());
  return replace(text, old, by, as_integer(most).value_or(-1));
}

Value as_json(const Value& value, Parameters& parameters, Runtime& runtime) {
  constexpr int64_t kWidest = 64;
  JsonStyle style;
  style.ensure_ascii = parameters.truth("ensure_ascii", false);
  const Value indent = parameters.take("indent", None{}), separators = parameters.take("separators", None{});
  style.sort_keys = parameters.truth("sort_keys", false);
  if (indent.text()) style.indent = *indent.text();
  if (as_integer(indent))
    style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(*as_integer(indent), 0, kWidest)), ' ');
  if (style.indent) style.between_items = ",";
  if (!separators.is_none()) {
    const std::vector<Value> two = items_of(separators, runtime);
    if (two.size() != 2 || !two[0].text() || !two[1].text()) throw Failure{"tojson: 'separators' are two texts"};
    style.between_items = *two[0].text(), style.after_key = *two[1].text();
  }
  return json_of(value, style, runtime);
}

// Each line but the first is moved to the right.
Value indented(const Value& value, Parameters& parameters, Runtime& runtime) {
  constexpr int64_t kWidest = 1000;
  const Value width = parameters.take("width", int64_t{4});
  const bool first = parameters.truth("first", false), blank = parameters.truth("blank", false);
  const std::string by =
      width.text()
          ? *width.text()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(as_integer(width).value_or(4), 0, kWidest)), ' ');
  const std::string whole = text_of(value, runtime) + "\n";  // so that a line end at the end is not lost
  const std::vector<std::string_view> lines = split_lines(whole);
  runtime.charge(whole.size() + by.size() * lines.size());
  std::string text = first ? by : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += '\n';
    if (i > 0 && (blank || !lines[i].empty())) text += by;
    text += lines[i];
  }
  return text;
}

Value as_whole_number(const Value& value, Parameters& parameters, Runtime&) {
  const Value otherwise = parameters.take("default", int64_t{0});
  if (as_integer(value)) return *as_integer(value);
  std::optional<double> number = as_number(value);
  if (value.text()) {
    const std::string text(strip(*value.text(), nullptr, Sides::both));
    char* end = nullptr;
    const double read = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0') number = read;
  }
  constexpr double kMost = 9e18;
  return number && std::abs(*number) < kMost ? Value(static_cast<int64_t>(*number)) : otherwise;
}

Value as_real_number(const Value& value, Parameters& parameters, Runtime&) {
  const Value otherwise = parameters.take("default", 0.0);
  if (as_number(value)) return *as_number(value);
  if (!value.text()) return otherwise;
  const std::string text(strip(*value.text(), nullptr, Sides::both));
  char* end = nullptr;
  const double read = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' ? Value(read) : otherwise;
}

Value absolute(const Value& value, Parameters&, Runtime&) {
  if (value.real()) return std::abs(*value.real());
  return as_integer(value) && *as_integer(value) >= 0 ? Value(*as_integer(value)) : negative(value);
}

Value counted_items(const Value& value, Parameters&, Runtime& runtime) {
  runtime.charge(value.text() ? value.text()->size() : 1);
  return length_of(value);
}

Value entries(const Value& value, Parameters&, Runtime& runtime) {
  if (value.is_undefined()) return Value::list({});
  if (!value.mapping()) throw Failure{fmt::format("items: a {} is no mapping", value.type_name())};
  return attribute(value, "items", runtime).function()->call(runtime, {});
}

constexpr NamedFilter kFilters[] = {
    {"abs", absolute},
    {"capitalize", changed_text<capitalize>},
    {"count", counted_items},
    {"d", defaulted},
    {"default", defaulted},
    {"float", as_real_number},
    {"indent", indented},
    {"int", as_whole_number},
    {"items", entries},
    {"length", counted_items},
    {"lower", changed_text<lower>},
    {"replace", with_replacements},
    {"safe", [](const Value& value, Parameters&, Runtime& runtime) { return Value(text_of(value, runtime)); }},
    {"string", [](const Value& value, Parameters&, Runtime& runtime) { return Value(text_of(value, runtime)); }},
    {"title", changed_text<titled>},
    {"tojson", as_json},
    {"trim", trimmed},
    {"upper", changed_text<upper>},
};

}  // namespace

Filter find_filter(std::string_view name) {
  const auto is_it = [name](const NamedFilter& filter) { return filter.name == name; };
  const auto found = std::find_if(std::begin(kFilters), std::end(kFilters), is_it);
  return found != std::end(kFilters) ? found->filter : find_sequence_filter(name);
}

}  // namespace gpt::jinja
