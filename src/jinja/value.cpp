#include "gpt/jinja/value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpt/jinja/template_error.h"

namespace gpt::jinja {
namespace {

constexpr int kDeepestValue = 100;

// `whole` is to hold `part`. Namespaces and functions reach what they are held by: nothing would ever free it.
void grow(auto& whole, const Value& part) {
  constexpr size_t kMostWeight = size_t{1} << 40;
  if (part.object() || part.function())
    throw Failure{"a namespace or a function is a variable, and cannot lie in a value"};
  const int depth = 1 + (part.list() ? part.list()->depth : part.mapping() ? part.mapping()->depth : 0);
  if (depth > kDeepestValue) throw Failure{"values are nested too deeply"};
  whole.depth = std::max(whole.depth, depth);
  whole.weight = std::min(whole.weight + part.weight(), kMostWeight);
}

Value value_of(const nlohmann::ordered_json& json) {
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number()) {
    if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      throw Failure{"the number " + json.dump() + " is too large"};
    return json.get<int64_t>();
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) items.push_back(value_of(item));
    return Value::list(std::move(items));
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : json.items()) entries.emplace_back(key, value_of(value));
  return Value::mapping(std::move(entries));
}

}  // namespace

const Value* Mapping::find(const Value& key) const {
  const auto is_it = [&key](const auto& entry) { return equal(entry.first, key); };
  const auto found = std::find_if(entries.begin(), entries.end(), is_it);
  return found == entries.end() ? nullptr : &found->second;
}

const Value* Mapping::find(std::string_view key) const {
  const auto is_it = [key](const auto& entry) { return entry.first.text() && *entry.first.text() == key; };
  const auto found = std::find_if(entries.begin(), entries.end(), is_it);
  return found == entries.end() ? nullptr : &found->second;
}

Value Value::list(std::vector<Value> items, bool is_tuple) {
  List list{.items = {}, .is_tuple = is_tuple};
  for (const Value& item : items) grow(list, item);
  list.items = std::move(items);
  Value value;
  value.data_ = std::make_shared<const List>(std::move(list));
  return value;
}

Value Value::mapping(std::vector<std::pair<Value, Value>> entries) {
  Mapping mapping;
  for (const auto& [key, item] : entries) {
    if (key.list() || key.mapping() || key.object() || key.function())
      throw Failure{std::string("a key cannot be a ") + key.type_name()};
    grow(mapping, key), grow(mapping, item);
  }
  mapping.entries = std::move(entries);
  Value value;
  value.data_ = std::make_shared<const Mapping>(std::move(mapping));
  return value;
}

size_t Value::weight() const {
  return text() ? text()->size() + 1 : list() ? list()->weight : mapping() ? mapping()->weight : 1;
}

const char* Value::type_name() const {
  if (list() && list()->is_tuple) return "tuple";
  constexpr const char* kNames[] = {"undefined value", "None",    "bool", "int", "float", "str", "list", "dict",
                                    "namespace",       "function"};
  return kNames[data_.index()];
}

std::optional<int64_t> as_integer(const Value& value) {
  if (value.boolean()) return *value.boolean() ? 1 : 0;
  return value.integer() ? std::optional(*value.integer()) : std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (value.real()) return *value.real();
  const std::optional<int64_t> integer = as_integer(value);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

bool equal(const Value& a, const Value& b) {
  if (a.text() && b.text()) return *a.text() == *b.text();
  if (as_integer(a) && as_integer(b)) return as_integer(a) == as_integer(b);
  if (as_number(a) && as_number(b)) return as_number(a) == as_number(b);
  if (a.list() && b.list()) {
    const List &x = *a.list(), &y = *b.list();
    return x.is_tuple == y.is_tuple &&
           std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), equal);
  }
  if (a.mapping() && b.mapping()) {
    const Mapping &x = *a.mapping(), &y = *b.mapping();
    return x.entries.size() == y.entries.size() &&
           std::all_of(x.entries.begin(), x.entries.end(), [&](const auto& entry) {
             const Value* const other = y.find(entry.first);
             return other && equal(entry.second, *other);
           });
  }
  if (a.object() || a.function()) return a.object() == b.object() && a.function() == b.function();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Value from_json(const nlohmann::ordered_json& json) {
  try {
    return value_of(json);
  } catch (const Failure& failure) { throw TemplateError(failure.why); }
}

}  // namespace gpt::jinja
