#include "operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "python_text.h"

namespace gpt::jinja {
namespace {

[[noreturn]] void refuse_types(std::string_view sign, const Value& a, const Value& b) {
  throw Failure{fmt::format("'{}' cannot be done with a {} and a {}", sign, a.type_name(), b.type_name())};
}

[[noreturn]] void refuse_overflow() { throw Failure{"a number becomes too large"}; }

int64_t floor_divide(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) refuse_overflow();
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) refuse_overflow();
  return result;
}

Value compute_integers(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (sign == "+") overflows = __builtin_add_overflow(a, b, &result);
  if (sign == "-") overflows = __builtin_sub_overflow(a, b, &result);
  if (sign == "*") overflows = __builtin_mul_overflow(a, b, &result);
  if (overflows) refuse_overflow();
  if (b == 0 && (sign == "/" || sign == "//" || sign == "%")) throw Failure{"division by zero"};
  if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (sign == "//") return floor_divide(a, b);
  if (sign == "%") return b == -1 ? int64_t{0} : a - floor_divide(a, b) * b;
  if (sign == "**") return b < 0 ? Value(std::pow(static_cast<double>(a), static_cast<double>(b))) : Value(power(a, b));
  return result;
}

Value compute_numbers(std::string_view sign, double a, double b) {
  if (b == 0 && (sign == "/" || sign == "//" || sign == "%")) throw Failure{"division by zero"};
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "/") return a / b;
  if (sign == "//") return std::floor(a / b);
  if (sign == "**") return std::pow(a, b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value repeated(const Value& value, int64_t times, Runtime& runtime) {
  times = std::max<int64_t>(times, 0);
  size_t size = 0;
  if (__builtin_mul_overflow(32 * value.weight(), static_cast<size_t>(times), &size)) size = SIZE_MAX;
  runtime.charge(size);
  if (value.text()) {
    std::string text;
    for (int64_t i = 0; i < times && !value.text()->empty(); ++i) text += *value.text();
    return text;
  }
  std::vector<Value> items;
  const List& list = *value.list();
  for (int64_t i = 0; i < times && !list.items.empty(); ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return Value::list(std::move(items), list.is_tuple);
}

std::vector<Value> joined(const List& a, const List& b) {
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return items;
}

}  // namespace

const Value& defined(const Value& value) {
  if (value.is_undefined())
    throw Failure{value.undefined()->why.empty() ? "a value is undefined" : value.undefined()->why};
  return value;
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.text()) return !value.text()->empty();
  if (value.list()) return !value.list()->items.empty();
  if (value.mapping()) return !value.mapping()->entries.empty();
  const std::optional<double> number = as_number(value);
  return !number || *number != 0;
}

int compare(const Value& a, const Value& b, Runtime& runtime) {
  defined(a), defined(b);
  runtime.charge(16 + std::min(a.weight(), b.weight()));
  if (a.text() && b.text()) return a.text()->compare(*b.text());  // bytes of UTF-8 are in the order of the characters
  if (as_integer(a) && as_integer(b)) return *as_integer(a) < *as_integer(b) ? -1 : *as_integer(a) > *as_integer(b);
  if (as_number(a) && as_number(b)) return *as_number(a) < *as_number(b) ? -1 : *as_number(a) > *as_number(b);
  if (!a.list() || !b.list() || a.list()->is_tuple != b.list()->is_tuple) refuse_types("<", a, b);
  const std::vector<Value>&x = a.list()->items, &y = b.list()->items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!equal(x[i], y[i])) return compare(x[i], y[i], runtime);
  return x.size() < y.size() ? -1 : x.size() > y.size();
}

bool contains(const Value& whole, const Value& part, Runtime& runtime) {
  runtime.charge(whole.weight());
  if (whole.text()) {
    if (!part.text()) refuse_types("in", part, whole);
    return whole.text()->find(*part.text()) != std::string::npos;
  }
  if (whole.mapping()) return whole.mapping()->find(part) != nullptr;
  if (whole.is_undefined()) return false;
  if (!whole.list())
    throw Failure{fmt::format("'in' looks into texts, lists and mappings, not into a {}", whole.type_name())};
  const std::vector<Value>& items = whole.list()->items;
  return std::any_of(items.begin(), items.end(), [&](const Value& item) { return equal(item, part); });
}

Value compute(std::string_view sign, const Value& a, const Value& b, Runtime& runtime) {
  defined(a), defined(b);
  if (as_integer(a) && as_integer(b)) return compute_integers(sign, *as_integer(a), *as_integer(b));
  if (as_number(a) && as_number(b)) return compute_numbers(sign, *as_number(a), *as_number(b));
  if (sign == "%" && a.text()) throw Failure{"texts are not formatted with %: use ~"};
  if (sign == "*" && (a.text() || a.list()) && as_integer(b)) return repeated(a, *as_integer(b), runtime);
  if (sign == "*" && (b.text() || b.list()) && as_integer(a)) return repeated(b, *as_integer(a), runtime);
  if (sign == "+" && a.text() && b.text()) {
    runtime.charge(a.text()->size() + b.text()->size());
    return *a.text() + *b.text();
  }
  if (sign == "+" && a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple) {
    runtime.charge(32 * (a.list()->items.size() + b.list()->items.size()));
    return Value::list(joined(*a.list(), *b.list()), a.list()->is_tuple);
  }
  refuse_types(sign, a, b);
}

Value negative(const Value& value) {
  if (value.real()) return -*value.real();
  if (as_integer(value) == INT64_MIN) refuse_overflow();
  if (as_integer(value)) return -*as_integer(value);
  throw Failure{fmt::format("'-' cannot be done with a {}", value.type_name())};
}

int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.text()) return length(*value.text());
  if (value.list()) return std::ssize(value.list()->items);
  if (value.mapping()) return std::ssize(value.mapping()->entries);
  throw Failure{fmt::format("a {} has no length", value.type_name())};
}

std::vector<Value> items_of(const Value& value, Runtime& runtime) {
  std::vector<Value> items;
  if (value.list()) {
    items = value.list()->items;
  } else if (value.mapping()) {
    for (const auto& [key, ignored] : value.mapping()->entries) items.push_back(key);
  } else if (value.text()) {
    runtime.charge(64 * value.text()->size());
    for (const std::string_view character : characters(*value.text())) items.push_back(character);
  } else if (!value.is_undefined()) {
    throw Failure{fmt::format("a {} cannot be gone through", value.type_name())};
  }
  runtime.charge(32 * items.size());
  return items;
}

}  // namespace gpt::jinja
