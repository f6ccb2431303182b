#include "access.h"

#include <fmt/format.h>

#include <algorithm>

#include "methods.h"
#include "operators.h"
#include "python_text.h"

namespace gpt::jinja {

Value attribute(const Value& value, std::string_view name, Runtime& runtime) {
  defined(value);
  if (value.object()) {
    if (std::optional<Value> found = value.object()->attribute(name)) return *found;
  } else if (std::optional<Value> bound = method(value, name)) {
    return *bound;
  } else if (value.mapping()) {
    runtime.charge(value.mapping()->entries.size());
    if (const Value* const found = value.mapping()->find(name)) return *found;
  }
  return Undefined{fmt::format("the {} has no '{}'", value.type_name(), name)};
}

Value item(const Value& value, const Value& key, Runtime& runtime) {
  defined(value);
  if (value.mapping()) {
    runtime.charge(value.mapping()->entries.size());
    if (const Value* const found = value.mapping()->find(key)) return *found;
  }
  if (key.text()) return attribute(value, *key.text(), runtime);
  const std::optional<int64_t> index = as_integer(key);
  const Undefined missing{fmt::format("the {} has no such item", value.type_name())};
  if (!index || (!value.list() && !value.text())) return missing;
  runtime.charge(value.text() ? value.text()->size() : 1);
  const int64_t size = length_of(value), at = *index < 0 ? *index + size : *index;
  if (at < 0 || at >= size) return missing;
  return value.list() ? value.list()->items[static_cast<size_t>(at)]
                      : Value(characters(*value.text())[static_cast<size_t>(at)]);
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step, Runtime& runtime) {
  defined(value);
  if (!value.text() && !value.list()) throw Failure{fmt::format("a {} cannot be sliced", value.type_name())};
  const auto number = [](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    if (!as_integer(v)) throw Failure{fmt::format("a slice is cut at whole numbers, not at a {}", v.type_name())};
    return *as_integer(v);
  };
  const std::vector<Value> items = items_of(value, runtime);
  const int64_t size = std::ssize(items), by = std::max<int64_t>(number(step, 1), -INT64_MAX);
  if (by == 0) throw Failure{"the step of a slice cannot be 0"};
  const int64_t least = by < 0 ? -1 : 0, most = by < 0 ? size - 1 : size;
  const auto place = [&](const Value& v, int64_t otherwise) {
    const int64_t at = number(v, otherwise);
    return v.is_none() ? otherwise : std::clamp(at < 0 ? at + size : at, least, most);
  };
  std::vector<Value> chosen;
  const int64_t last = place(stop, by < 0 ? -1 : size);
  for (int64_t i = place(start, by < 0 ? size - 1 : 0); by < 0 ? i > last : i < last;) {
    chosen.push_back(items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (value.list()) return Value::list(std::move(chosen), value.list()->is_tuple);
  std::string text;
  for (const Value& character : chosen) text += *character.text();
  return text;
}

}  // namespace gpt::jinja
