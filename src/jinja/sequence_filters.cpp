// Filters of lists, and of what can be gone through like one.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "access.h"
#include "filters.h"
#include "operators.h"
#include "python_text.h"

namespace gpt::jinja {
namespace {

// "a.b.0" of a value: the names and numbers that lead to it.
Value value_at(Value value, const Value& path, Runtime& runtime) {
  if (!path.text()) return item(value, path, runtime);
  const std::string dot = ".";
  for (const std::string_view part : split(*path.text(), &dot, -1, false)) {
    int64_t index = 0;
    const bool is_index =
        std::from_chars(part.data(), part.data() + part.size(), index).ptr == part.data() + part.size() &&
        !part.empty();
    value = item(value, is_index ? Value(index) : Value(part), runtime);
  }
  return value;
}

// `is_same_case`: texts that differ by case alone do not differ.
Value folded(const Value& value, bool is_same_case) {
  return is_same_case && value.text() ? Value(lower(*value.text())) : value;
}

Value first_item(const Value& value, Parameters&, Runtime& runtime) {
  const std::vector<Value> items = items_of(value, runtime);
  return items.empty() ? Value(Undefined{"there is no first item: the sequence is empty"}) : items.front();
}

Value last_item(const Value& value, Parameters&, Runtime& runtime) {
  const std::vector<Value> items = items_of(value, runtime);
  return items.empty() ? Value(Undefined{"there is no last item: the sequence is empty"}) : items.back();
}

Value joined(const Value& value, Parameters& parameters, Runtime& runtime) {
  const std::string between = text_of(parameters.take("d", ""), runtime);
  const Value path = parameters.take("attribute", None{});
  std::string text;
  bool is_first = true;
  for (const Value& part : items_of(value, runtime)) {
    if (!std::exchange(is_first, false)) text += between;
    runtime.charge(between.size());
    text += text_of(path.is_none() ? part : value_at(part, path, runtime), runtime);
  }
  return text;
}

// select and map go through nothing where the value counts as false, such as none.
std::vector<Value> items_if_true(const Value& value, Runtime& runtime) {
  return is_true(value) ? items_of(value, runtime) : std::vector<Value>();
}

// The test that a filter is given by its name; without one whether it counts as true.
bool passes(const Value& value, Parameters parameters, Runtime& runtime) {
  if (!parameters.has_more()) return is_true(value);
  const std::string name = parameters.text("test");
  const Filter test = find_test(name);
  if (!test) throw Failure{fmt::format("the test '{}' is not supported", name)};
  Parameters given(name, parameters.rest());
  return is_true(test(value, given, runtime));
}

template <bool by_attribute, bool keeps>
Value chosen(const Value& value, Parameters& parameters, Runtime& runtime) {
  std::vector<Value> kept;
  const Value path = by_attribute ? parameters.take("attribute") : Value();
  const Parameters test("a test", parameters.rest());
  for (const Value& one : items_if_true(value, runtime)) {
    runtime.charge(64);
    if (passes(by_attribute ? value_at(one, path, runtime) : one, test, runtime) == keeps) kept.push_back(one);
  }
  return Value::list(std::move(kept));
}

Value mapped(const Value& value, Parameters& parameters, Runtime& runtime) {
  std::vector<Value> results;
  const bool by_filter = parameters.has_more();
  const std::string name = by_filter ? parameters.text("filter") : "";
  const Filter filter = by_filter ? find_filter(name) : nullptr;
  if (by_filter && !filter) throw Failure{fmt::format("the filter '{}' is not supported", name)};
  const Value path = by_filter ? Value() : parameters.take("attribute"),
              otherwise = by_filter ? Value() : parameters.take("default", Value());
  const Parameters given(name, parameters.rest());
  for (const Value& one : items_if_true(value, runtime)) {
    runtime.charge(64);
    Parameters each = given;
    Value result = by_filter ? filter(one, each, runtime) : value_at(one, path, runtime);
    results.push_back(result.is_undefined() ? otherwise : std::move(result));
  }
  return Value::list(std::move(results));
}

// By what comes out of `key` for each, which may be nothing of its own.
template <class Key>
void sort_by(std::vector<Value>& items, bool is_reversed, Runtime& runtime, const Key& key) {
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return is_reversed ? compare(key(b), key(a), runtime) < 0 : compare(key(a), key(b), runtime) < 0;
  });
}

Value sorted(const Value& value, Parameters& parameters, Runtime& runtime) {
  const bool is_reversed = parameters.truth("reverse", false),
             is_same_case = !parameters.truth("case_sensitive", false);
  const Value path = parameters.take("attribute", None{});
  std::vector<Value> items = items_of(value, runtime);
  sort_by(items, is_reversed, runtime,
          [&](const Value& one) { return folded(path.is_none() ? one : value_at(one, path, runtime), is_same_case); });
  return Value::list(std::move(items));
}

Value sorted_entries(const Value& value, Parameters& parameters, Runtime& runtime) {
  if (!value.mapping()) throw Failure{fmt::format("dictsort: a {} is no mapping", value.type_name())};
  const bool is_same_case = !parameters.truth("case_sensitive", false);
  const size_t by = parameters.text("by", "key") == "key" ? 0 : 1;
  const bool is_reversed = parameters.truth("reverse", false);
  std::vector<Value> pairs;
  for (const auto& [key, entry] : value.mapping()->entries)
    pairs.push_back(Value::list({key, entry}, /*is_tuple=*/true));
  sort_by(pairs, is_reversed, runtime, [&](const Value& pair) { return folded(pair.list()->items[by], is_same_case); });
  return Value::list(std::move(pairs));
}

Value reversed(const Value& value, Parameters&, Runtime& runtime) {
  std::vector<Value> items = items_of(value, runtime);
  std::reverse(items.begin(), items.end());
  if (!value.text()) return Value::list(std::move(items));
  std::string text;
  for (const Value& character : items) text += *character.text();
  return text;
}

Value without_repetitions(const Value& value, Parameters& parameters, Runtime& runtime) {
  const bool is_same_case = !parameters.truth("case_sensitive", false);
  const Value path = parameters.take("attribute", None{});
  std::vector<Value> kept, keys;
  size_t weight = 1;
  for (const Value& one : items_of(value, runtime)) {
    const Value key = folded(path.is_none() ? one : value_at(one, path, runtime), is_same_case);
    runtime.charge(weight);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& other) { return equal(other, key); })) continue;
    keys.push_back(key), kept.push_back(one), weight += 16 + key.weight();
  }
  return Value::list(std::move(kept));
}

template <bool largest>
Value extreme(const Value& value, Parameters&, Runtime& runtime) {
  const std::vector<Value> items = items_of(value, runtime);
  if (items.empty()) return Undefined{"there is no item: the sequence is empty"};
  const Value* best = &items[0];
  for (const Value& one : items)
    if (const int order = compare(one, *best, runtime); largest ? order > 0 : order < 0) best = &one;
  return *best;
}

Value summed(const Value& value, Parameters& parameters, Runtime& runtime) {
  const Value path = parameters.take("attribute", None{});
  Value sum = parameters.take("start", int64_t{0});
  for (const Value& one : items_of(value, runtime))
    sum = compute("+", sum, path.is_none() ? one : value_at(one, path, runtime), runtime);
  return sum;
}

struct NamedSequenceFilter {
  std::string_view name;
  Filter filter;
};

constexpr NamedSequenceFilter kSequenceFilters[] = {
    {"dictsort", sorted_entries},
    {"first", first_item},
    {"join", joined},
    {"last", last_item},
    {"list", [](const Value& value, Parameters&, Runtime& runtime) { return Value::list(items_of(value, runtime)); }},
    {"map", mapped},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", chosen<false, false>},
    {"rejectattr", chosen<true, false>},
    {"reverse", reversed},
    {"select", chosen<false, true>},
    {"selectattr", chosen<true, true>},
    {"sort", sorted},
    {"sum", summed},
    {"unique", without_repetitions},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  const auto is_it = [name](const NamedSequenceFilter& filter) { return filter.name == name; };
  const auto found = std::find_if(std::begin(kSequenceFilters), std::end(kSequenceFilters), is_it);
  return found == std::end(kSequenceFilters) ? nullptr : found->filter;
}

}  // namespace gpt::jinja
